// Graph servers on the fake device, whose graphs compute the toy model.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "cuda/graph_server.h"
#include "fake_cuda/fake_cuda.h"
#include "servers.h"

namespace dsi::test {

// A machine with `devices` whole devices, and in the end nothing left on it.
struct FakeMachine {
  explicit FakeMachine(int devices = 1) { fake_cuda_reset(devices); }
  ~FakeMachine() { CHECK(fake_cuda_live() == 0); }
  FakeMachine(const FakeMachine &) = delete;
  FakeMachine &operator=(const FakeMachine &) = delete;
};

struct RigOptions {
  int device = 0;
  int widest = 8;
  int edits = 16;
  int capacity = 64;
  int caches = 1;
  int segments = 1;
  bool drafts = false;
  long long delay_ns = 0; // of each segment
  fake_cuda_kernel before = nullptr;
  void *user = nullptr;
};

// What one server owns on the device beside itself. Outlives the server.
class GraphRig {
public:
  explicit GraphRig(ToyModel model, RigOptions options = {})
      : model_(model), options_(options), layout_{options.widest, options.edits},
        context_(std::make_shared<cuda::Context>(cuda::Driver::open(DSI_FAKE_CUDA).driver,
                                                 options.device)),
        inputs_(context_, layout_.input_bytes()), outputs_(context_, layout_.output_bytes()),
        memory_(static_cast<std::size_t>(options.caches),
                std::vector<int>(static_cast<std::size_t>(options.capacity), -1)) {}

  cuda::GraphServerConfig config() {
    cuda::GraphServerConfig config;
    config.context = context_;
    config.layout = layout_;
    config.inputs = inputs_.pointer();
    config.outputs = outputs_.pointer();
    config.capacity = options_.capacity;
    config.vocab_size = model_.vocab_size;
    for (std::vector<int> &memory : memory_) {
      cuda::GraphCache cache;
      for (int length = 1; length <= options_.widest; length *= 2)
        cache.windows.push_back({length, graphs(memory, length)});
      config.caches.push_back(std::move(cache));
    }
    return config;
  }
  std::unique_ptr<cuda::GraphServer> server(std::unique_ptr<Server> plain = nullptr) {
    cuda::GraphServerConfig made = config();
    made.plain = std::move(plain);
    return std::make_unique<cuda::GraphServer>(std::move(made));
  }
  const cuda::SharedContext &context() const { return context_; }

private:
  std::vector<cuda::GraphExec> graphs(std::vector<int> &memory, int length) {
    std::vector<cuda::GraphExec> segments;
    for (int segment = 0; segment < options_.segments; ++segment) {
      fake_cuda_toy toy{};
      toy.device = options_.device;
      toy.inputs = inputs_.pointer();
      toy.outputs = outputs_.pointer();
      toy.widest = options_.widest;
      toy.edits = options_.edits;
      toy.cache = memory.data();
      toy.capacity = options_.capacity;
      toy.length = length;
      toy.segment = segment;
      toy.segments = options_.segments;
      toy.seed = model_.seed;
      toy.vocab_size = model_.vocab_size;
      toy.acceptance = options_.drafts ? model_.acceptance : -1.0;
      toy.delay_ns = options_.delay_ns;
      toy.before = options_.before;
      toy.user = options_.user;
      segments.push_back(cuda::GraphExec::adopted(
          context_, static_cast<cuda::GraphExecObject *>(fake_cuda_toy_graph(&toy))));
    }
    return segments;
  }

  ToyModel model_;
  RigOptions options_;
  cuda::GraphLayout layout_;
  cuda::SharedContext context_;
  cuda::DeviceBuffer inputs_;
  cuda::DeviceBuffer outputs_;
  std::vector<std::vector<int>> memory_; // one per cache, touched by streams only
};

inline std::shared_ptr<Job> toy_job(JobKind kind, std::vector<Token> path, Position first,
                                    SamplingParams sampling = {}, RequestId request = 1) {
  auto context = std::make_shared<RequestContext>();
  context->id = request;
  context->sampling = std::move(sampling);
  context->prompt_tokens = 1;
  auto job = std::make_shared<Job>();
  job->kind = kind;
  job->id = 1;
  job->request = std::move(context);
  job->length = static_cast<Position>(path.size());
  job->tokens = TokenPrefix(path);
  job->first = first;
  job->max_drafts = 1;
  return job;
}

} // namespace dsi::test
