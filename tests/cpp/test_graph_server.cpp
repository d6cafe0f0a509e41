// One graph server, job by job: what it launches, what it caches, what it says.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <stdexcept>

#include "support/graph_rig.h"

using namespace dsi;
using namespace dsi::cuda;
using namespace dsi::test;

namespace {

const ToyModel kModel{5, 50, 0.7};

// The context is current on this thread, as it is on a worker's.
struct Attached {
  explicit Attached(Server &server, const SharedContext &on) : context(on) { server.started(); }
  ~Attached() {
    ContextObject *popped = nullptr;
    context->api().context_pop(&popped);
  }
  Attached(const Attached &) = delete;
  Attached &operator=(const Attached &) = delete;
  SharedContext context;
};

std::vector<Token> path_of(std::vector<Token> prompt, std::int64_t more) {
  const std::vector<Token> tokens = kModel.continuation(prompt, more);
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  return prompt;
}

std::vector<Token> tokens_of(const Outcome &outcome) {
  CHECK_MESSAGE(outcome.kind == Outcome::Kind::kDone, outcome.error.message);
  std::vector<Token> tokens;
  for (const JudgedRow &row : outcome.rows)
    tokens.push_back(row.token);
  return tokens;
}

// What the target says at positions first..path.size(), as far as the path agrees.
std::vector<Token> expected(const std::vector<Token> &path, Position first) {
  std::vector<Token> tokens;
  for (auto end = static_cast<std::size_t>(first); end <= path.size(); ++end) {
    tokens.push_back(kModel.target(std::span(path).first(end)));
    if (end < path.size() && tokens.back() != path[end])
      break;
  }
  return tokens;
}

long long launches() { return fake_cuda_calls("cuGraphLaunch"); }

// Answers what it is asked with a token that no graph says.
class PlainServer final : public Server {
public:
  void started() override { ++starts; }
  Outcome run(Job &job) override {
    ++runs;
    Outcome outcome;
    if (job.kind == JobKind::kVerify)
      outcome.rows.push_back({1000, 0.0F, {}});
    return outcome;
  }
  void stop(Job & /*job*/) override { ++stops; }
  void release(RequestId /*request*/) override { ++releases; }
  int starts = 0, runs = 0, stops = 0, releases = 0;
};

} // namespace

TEST_CASE("windows are padded, and what is cached is not computed again") {
  const FakeMachine machine;
  GraphRig rig(kModel);
  const auto server = rig.server();
  const Attached attached(*server, rig.context());
  const auto verify = [&](const std::vector<Token> &path, Position first) {
    const long long before = launches();
    CHECK(tokens_of(server->run(*toy_job(JobKind::kVerify, path, first))) == expected(path, first));
    return launches() - before;
  };
  std::vector<Token> path = path_of({7, 8, 9}, 8); // 11 ids
  CHECK(verify(path, 3) == 2);                     // windows of 8 and of 4, one of them padding
  CHECK(verify(path, 11) == 1);                    // the last id is computed again
  path = path_of({7, 8, 9}, 13);
  CHECK(verify(path, 12) == 1); // 11 cached, 5 more in a window of 8
  path[12] = (path[12] + 1) % kModel.vocab_size;
  CHECK(verify(path, 12) == 1); // from the change on
  CHECK(verify(path, 14) == 1);
  path = path_of({7, 8, 9}, 50);
  CHECK(verify(path, 50) == 6); // 41 ids from 12 on
  path = path_of({1}, 0);
  CHECK(verify(path, 1) == 1);
}

TEST_CASE("a cache is used up to its last position, and not behind") {
  const FakeMachine machine;
  RigOptions options;
  options.capacity = 13;
  GraphRig rig(kModel, options);
  const auto server = rig.server();
  const Attached attached(*server, rig.context());
  const std::vector<Token> path = path_of({3}, 12);
  CHECK(tokens_of(server->run(*toy_job(JobKind::kVerify, path, 1))) == expected(path, 1));
  CHECK(launches() == 3); // 8, 4 where 8 no longer fits, 1
  try {
    server->run(*toy_job(JobKind::kVerify, path_of({3}, 13), 1));
    FAIL("more tokens than the cache holds");
  } catch (const std::runtime_error &error) {
    CHECK(std::string(error.what()) == "14 tokens exceed the graphs' context of 13");
  }
}

TEST_CASE("drafts and prefills") {
  const FakeMachine machine;
  RigOptions options;
  options.drafts = true;
  GraphRig rig(kModel, options);
  const auto server = rig.server();
  const Attached attached(*server, rig.context());
  std::vector<Token> path = path_of({3, 4, 5}, 4);
  CHECK(server->run(*toy_job(JobKind::kPrefill, path, 0)).rows.empty());
  CHECK(launches() == 1);
  for (int i = 0; i < 10; ++i) {
    const Outcome outcome = server->run(*toy_job(JobKind::kDraft, path, 0));
    REQUIRE(outcome.drafts.size() == 1);
    CHECK(outcome.drafts[0].law == nullptr);
    CHECK(outcome.drafts[0].id == kModel.draft(path));
    path.push_back(outcome.drafts[0].id);
  }
  CHECK(launches() == 11);
}

TEST_CASE("requests keep their caches; a free one serves whoever shares most of it") {
  const FakeMachine machine;
  RigOptions options;
  options.caches = 2;
  GraphRig rig(kModel, options);
  const auto server = rig.server();
  const Attached attached(*server, rig.context());
  const auto cost = [&](const std::vector<Token> &path, RequestId request) {
    const long long before = launches();
    const auto first = static_cast<Position>(path.size());
    CHECK(tokens_of(server->run(*toy_job(JobKind::kVerify, path, first, {}, request))) ==
          expected(path, first));
    return launches() - before;
  };
  const std::vector<Token> one = path_of({1}, 40), two = path_of({2}, 40);
  CHECK(cost(one, 1) == 6);
  CHECK(cost(two, 2) == 6);
  CHECK(cost(one, 1) == 1);
  CHECK(cost(two, 2) == 1);
  server->release(1);
  server->release(2);
  CHECK(cost(two, 3) == 1); // the prompt of request 2 again
  CHECK(cost(one, 4) == 1);
  CHECK(cost(path_of({9}, 3), 5) == 1); // takes request 3's, unused for longest
  CHECK(cost(one, 4) == 1);
  CHECK(cost(two, 3) == 6);
}

TEST_CASE("edits and log-probabilities reach the rows they are for") {
  const FakeMachine machine;
  RigOptions options;
  options.edits = 3;
  GraphRig rig(kModel, options);
  auto plain = std::make_unique<PlainServer>();
  PlainServer &other = *plain;
  const auto server = rig.server(std::move(plain));
  const Attached attached(*server, rig.context());
  const std::vector<Token> path = path_of({3, 4}, 4);
  SamplingParams sampling;
  sampling.logprobs = 0;
  sampling.min_new_tokens = 2; // of the prompt's one: up to position 2
  sampling.stop_ids = {kModel.target(std::span(path).first(2))};
  const Outcome outcome = server->run(*toy_job(JobKind::kVerify, path, 2, sampling));
  REQUIRE(outcome.rows.size() == 1); // the edit made it a mismatch
  CHECK(outcome.rows[0].token == (path[2] + 1) % kModel.vocab_size);
  CHECK(outcome.rows[0].logprob == -static_cast<float>(outcome.rows[0].token));
  CHECK(tokens_of(server->run(*toy_job(JobKind::kVerify, path, 3, sampling))) == expected(path, 3));
  CHECK(other.runs == 0);
  sampling.stop_ids = {1, 2, 3, 4}; // more than there is room for
  server->run(*toy_job(JobKind::kVerify, path, 2, sampling));
  CHECK(other.runs == 1);
}

TEST_CASE("what no graph was captured for goes to the plain server") {
  const FakeMachine machine;
  GraphRig rig(kModel);
  auto plain = std::make_unique<PlainServer>();
  PlainServer &other = *plain;
  const auto server = rig.server(std::move(plain));
  const Attached attached(*server, rig.context());
  CHECK(other.starts == 1);
  const auto goes_to_plain = [&](const SamplingParams &sampling, bool hooked = false) {
    const int before = other.runs;
    const auto job = toy_job(JobKind::kVerify, {1, 2}, 1, sampling);
    if (hooked) {
      auto context = std::make_shared<RequestContext>(*job->request);
      context->hook = std::make_shared<int>(0);
      job->request = context;
    }
    server->run(*job);
    return other.runs > before;
  };
  SamplingParams sampling;
  CHECK_FALSE(goes_to_plain(sampling));
  CHECK(goes_to_plain(sampling, true));
  sampling.verification = Verification::kRejection;
  CHECK_FALSE(goes_to_plain(sampling)); // greedy
  sampling.temperature = 0.7F;
  CHECK(goes_to_plain(sampling));
  sampling.verification = Verification::kCoupled;
  CHECK_FALSE(goes_to_plain(sampling));
  sampling.logprobs = 3;
  CHECK(goes_to_plain(sampling));
  CHECK(other.runs == 3);
  server->run(*toy_job(JobKind::kVerify, path_of({1}, 64), 60)); // longer than the cache
  CHECK(other.runs == 4);
  const auto job = toy_job(JobKind::kVerify, {1}, 1);
  server->stop(*job);
  server->release(1);
  CHECK((other.stops == 1 && other.releases == 1));
  GraphRig bare(kModel);
  const auto alone = bare.server();
  CHECK_THROWS_WITH(alone->run(*toy_job(JobKind::kVerify, {1, 2}, 1, sampling)),
                    "the target has no graph for this request");
}

namespace {

// Holds segments back until the test lets them go, one at a time.
struct Turnstile {
  std::atomic<int> arrived = 0;
  std::atomic<int> let_go = 0;
  static int pass(void *turnstile) {
    auto &self = *static_cast<Turnstile *>(turnstile);
    const int number = ++self.arrived;
    while (self.let_go < number)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    return 0;
  }
};

bool comes(const std::function<bool()> &condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

} // namespace

TEST_CASE("a stopped job costs what was launched already, two segments at most") {
  const FakeMachine machine;
  Turnstile turnstile;
  RigOptions options;
  options.segments = 5;
  options.before = Turnstile::pass;
  options.user = &turnstile;
  GraphRig rig(kModel, options);
  const auto server = rig.server();
  const std::vector<Token> path = path_of({3, 4}, 12);
  const auto job = toy_job(JobKind::kVerify, path, 2);
  Outcome outcome;
  {
    std::jthread worker([&] {
      const Attached attached(*server, rig.context());
      outcome = server->run(*job);
    });
    turnstile.let_go = 3;
    CHECK(comes([&] { return turnstile.arrived == 4 && launches() == 5; }));
    job->stopped = true;
    turnstile.let_go = 1000;
  }
  CHECK(outcome.kind == Outcome::Kind::kStopped);
  CHECK(launches() == 5); // the first window of 8 ids, none of the second
  const Attached attached(*server, rig.context());
  const std::vector<Token> right = expected(path, 2);
  CHECK(tokens_of(server->run(*toy_job(JobKind::kVerify, path, 2))) == right);
  // Stopped before the first launch: nothing is.
  const long long before = launches();
  CHECK(server->run(*job).kind == Outcome::Kind::kStopped);
  CHECK(launches() == before);
  CHECK(tokens_of(server->run(*toy_job(JobKind::kVerify, path, 2))) == right);
}

TEST_CASE("a call that fails fails its job with its text, and the next job is right") {
  const FakeMachine machine;
  RigOptions options;
  options.segments = 2;
  GraphRig rig(kModel, options);
  GraphServerConfig config = rig.config();
  int kept = 0;
  config.kept = [&](const CudaError &error) {
    ++kept;
    return JobError{error.what(), nullptr};
  };
  GraphServer server(std::move(config));
  const Attached attached(server, rig.context());
  const std::vector<Token> path = path_of({3, 4}, 14);
  int failures = 0;
  for (const char *symbol : {"cuGraphLaunch", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
                             "cuEventRecord", "cuEventSynchronize"}) {
    for (const int after : {0, 1}) {
      fake_cuda_fail(symbol, 2, after);
      const Outcome outcome = server.run(*toy_job(JobKind::kVerify, path, 2));
      REQUIRE(outcome.kind == Outcome::Kind::kFailed);
      CHECK(outcome.error.message == std::string(symbol) + ": CUDA_ERROR_OUT_OF_MEMORY (2)");
      CHECK(outcome.blames_server);
      CHECK_FALSE(outcome.server_lost);
      CHECK(kept == ++failures);
      CHECK(tokens_of(server.run(*toy_job(JobKind::kVerify, path, 2))) == expected(path, 2));
      server.release(1);
    }
  }
}

TEST_CASE("a broken device loses its server, which says why each time it is asked") {
  const FakeMachine machine;
  GraphRig rig(kModel);
  const auto server = rig.server();
  const Attached attached(*server, rig.context());
  fake_cuda_break(0, 700);
  const long long before = launches();
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = server->run(*toy_job(JobKind::kVerify, {1, 2}, 1));
    CHECK(outcome.kind == Outcome::Kind::kFailed);
    CHECK(outcome.error.message == "cuMemcpyHtoDAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    CHECK(outcome.server_lost);
  }
  CHECK(launches() == before);
}

TEST_CASE("rows that cannot be drawn from end a window, and fail it where they come first") {
  const FakeMachine machine;
  struct Rows {
    std::int32_t tokens[4], status[4];
    DevicePointer outputs;
    static int write(void *self) {
      auto &rows = *static_cast<Rows *>(self);
      auto *out = reinterpret_cast<std::int32_t *>(static_cast<std::uintptr_t>(rows.outputs));
      std::memcpy(out, rows.tokens, sizeof(rows.tokens));
      std::memcpy(out + 4, rows.status, sizeof(rows.status));
      return 0;
    }
  };
  RigOptions options;
  options.widest = 4;
  GraphRig rig(kModel, options);
  GraphServerConfig config = rig.config();
  Rows rows{{1, 2, 3, 4}, {0, 0, 0, 0}, config.outputs};
  for (WindowGraph &window : config.caches[0].windows)
    window.segments = {GraphExec::adopted(
        rig.context(), static_cast<GraphExecObject *>(fake_cuda_graph(0, Rows::write, &rows, 0)))};
  GraphServer server(std::move(config));
  const Attached attached(server, rig.context());
  const auto verify = [&] {
    server.release(1);
    return server.run(*toy_job(JobKind::kVerify, {0, 1, 2, 3}, 1));
  };
  CHECK(tokens_of(verify()) == std::vector<Token>{1, 2, 3, 4});
  rows.status[2] = 1;
  CHECK(tokens_of(verify()) == std::vector<Token>{1, 2});
  rows.status[0] = 1;
  CHECK(verify().error.message == "the target's logits for position 1 cannot be drawn from: " +
                                      std::string(describe(RowStatus::kNaN)));
  rows.status[0] = 16;
  CHECK(verify().error.message.find(describe(RowStatus::kInfinite)) != std::string::npos);
  rows.status[0] = 0;
  rows.tokens[0] = -1;
  CHECK(verify().error.message.find(describe(RowStatus::kNothingLeft)) != std::string::npos);
  CHECK_FALSE(verify().blames_server);
  rows.tokens[0] = 50;
  CHECK_THROWS_WITH(verify(), "a graph of the target drew id 50 of 50");
}

TEST_CASE("a configuration that makes no sense is refused by name") {
  const FakeMachine machine;
  GraphRig rig(kModel);
  const auto refused = [&](const std::function<void(GraphServerConfig &)> &change) {
    GraphServerConfig config = rig.config();
    change(config);
    CHECK_THROWS_AS(GraphServer(std::move(config)), std::invalid_argument);
  };
  refused([](GraphServerConfig &config) { config.caches.clear(); });
  refused([](GraphServerConfig &config) { config.inputs = 0; });
  refused([](GraphServerConfig &config) { config.capacity = 0; });
  refused([](GraphServerConfig &config) {
    config.caches[0].windows.erase(config.caches[0].windows.begin());
  });
  refused([](GraphServerConfig &config) { config.caches[0].windows[0].segments.clear(); });
  refused([](GraphServerConfig &config) {
    std::swap(config.caches[0].windows[0], config.caches[0].windows[1]);
  });
  refused([](GraphServerConfig &config) { config.layout.window = 4; });
}
