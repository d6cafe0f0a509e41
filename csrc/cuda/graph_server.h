// A server whose forwards are captured graphs, replayed on a stream of its own by its worker's
// thread: no Python, no GIL, and no wait but for events.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/graph_layout.h"
#include "cuda/resources.h"
#include "kernels/law.h"
#include "runtime/server.h"

namespace dsi::cuda {

// One forward over `length` ids as captured: segments to launch in this order. The last one draws:
// row i gives the token behind ids 0..i, in coupled mode.
struct WindowGraph {
  int length = 0;
  std::vector<GraphExec> segments;
};

// A key/value cache in the device's memory, and the graphs that were captured over it. Each graph
// writes positions start .. start + length - 1 and reads those before; padding writes behind what
// counts, where the next forward will write again and no row that counts looks.
struct GraphCache {
  std::vector<WindowGraph> windows; // lengths ascending, the first is 1
};

struct GraphServerConfig {
  SharedContext context;
  int priority = 0; // of the stream, see Stream
  GraphLayout layout{1, 0};
  DevicePointer inputs = 0;  // layout.input_bytes() of the device's memory, that all graphs read
  DevicePointer outputs = 0; // layout.output_bytes(), that all graphs write
  Position capacity = 0;     // positions that a cache has room for
  Token vocab_size = 0;      // ids outside are no tokens
  std::vector<GraphCache> caches; // as many requests keep their past at once
  std::unique_ptr<Server> plain;  // for jobs that no graph was captured for; null: these fail
  // How the error of a driver call is kept, for bindings that know more; null: its text.
  std::function<JobError(const CudaError &)> kept;
};

// Runs verifies, drafts and prefills of requests that draw in coupled mode or greedily. What else
// there is (rejection, a logits processor, more than the emitted token's logprob, too many edits, a
// path longer than a cache) goes to `plain`, which has caches of its own.
//
// A job is a row of launches: for each window the copy of its ids, then its segments, then the copy
// of what they drew. At most two are on the device at once, each with an event, and before each the
// job's flag is looked at: a stopped job costs what was launched already. Blocks in run() only,
// without spinning.
class GraphServer final : public Server {
public:
  // Makes its stream, events and pinned memory. Throws std::invalid_argument and CudaError.
  explicit GraphServer(GraphServerConfig config);
  ~GraphServer() override;

  void started() override;
  Outcome run(Job &job) override;
  void stop(Job &job) override;
  void release(RequestId request) override;
  bool needs_tokens() const override { return true; }
  Server *plain() const { return config_.plain.get(); }

private:
  static constexpr std::size_t kInFlight = 2;

  struct Cached { // what a cache holds
    std::vector<Token> ids;
    RequestId owner = 0; // 0: nobody's, and the next request's to use as far as it fits
    std::uint64_t used = 0;
  };
  // One window of a job.
  struct Window {
    const WindowGraph *graph = nullptr;
    Position start = 0;
    int count = 0;
    bool read = false; // its rows are wanted
  };
  struct Edits { // of all rows of a job, from the first judged one on
    std::vector<std::int64_t> offsets;
    std::vector<Edit> all;
  };

  bool graphed(const Job &job);
  void list_edits(const Job &job);
  bool edits_fit(const Job &job) const;
  Cached &cache_for(const Job &job);
  std::vector<Window> windows_of(const Job &job, Position start, const GraphCache &cache) const;
  Outcome replay(Job &job, const GraphCache &graphs, Cached &cached);
  bool launch_all(Job &job, const std::vector<Window> &windows, Cached &cached);
  void copy_in(const Job &job, const Window &window, std::size_t slot);
  void take_rows(const Window &window, std::size_t slot);
  void drain() noexcept;
  Outcome verdict(const Job &job);
  Outcome failed(const CudaError &error);
  void note(const CudaError &error);
  RowStatus status_of(std::size_t row) const;

  GraphServerConfig config_;
  std::vector<Cached> cached_; // one per cache of the configuration
  std::uint64_t uses_ = 0;
  Edits edits_;
  std::vector<Token> tokens_; // drawn by this job's rows, for positions wanted_..
  std::vector<std::int32_t> status_;
  std::vector<float> logprobs_;
  Position wanted_ = 0;
  std::optional<CudaError> lost_; // what broke the device
  std::uint64_t launched_ = 0;
  std::uint64_t finished_ = 0; // of those, known to be over
  Stream stream_;
  std::array<Event, kInFlight> events_;
  std::array<PinnedBuffer, kInFlight> in_;
  std::array<PinnedBuffer, kInFlight> out_;
};

} // namespace dsi::cuda
