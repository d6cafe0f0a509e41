#include "cuda/graph_server.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "runtime/judge.h"
#include "runtime/worker.h"

namespace dsi::cuda {

namespace {

// Bits of dsi_native.kernels.Status.
constexpr std::int32_t kNaNSeen = 1;
constexpr std::int32_t kInfinitySeen = 16;

const GraphServerConfig &checked(const GraphServerConfig &config) {
  if (config.caches.empty())
    throw std::invalid_argument("caches: at least one is needed");
  if (config.inputs == 0 || config.outputs == 0)
    throw std::invalid_argument("inputs, outputs: addresses of device memory are needed");
  if (config.capacity < 1 || config.vocab_size < 1)
    throw std::invalid_argument("capacity, vocab_size: must be at least 1");
  for (const GraphCache &cache : config.caches) {
    int before = 0;
    for (const WindowGraph &window : cache.windows) {
      if (window.length <= before || window.length > config.layout.window)
        throw std::invalid_argument("windows: lengths must ascend, up to the layout's " +
                                    std::to_string(config.layout.window));
      if (window.segments.empty())
        throw std::invalid_argument("windows: a graph of one segment at least is needed");
      before = window.length;
    }
    if (cache.windows.empty() || cache.windows.front().length != 1)
      throw std::invalid_argument("windows: one of length 1 is needed");
  }
  return config;
}

// Positions whose rows the job's answer is made of, from here to job.length; none in a prefill.
Position first_wanted(const Job &job) {
  return job.kind == JobKind::kVerify  ? job.first
         : job.kind == JobKind::kDraft ? job.length
                                       : job.length + 1;
}

const char *whose(const Job &job) { return job.kind == JobKind::kDraft ? "drafter" : "target"; }

// As int32 or so, at `offset` of a block.
template <typename T> T *at(const PinnedBuffer &block, std::size_t offset) {
  return reinterpret_cast<T *>(static_cast<std::byte *>(block.data()) + offset);
}

} // namespace

GraphServer::GraphServer(GraphServerConfig config)
    : config_((checked(config), std::move(config))), cached_(config_.caches.size()),
      stream_(config_.context, config_.priority), events_{Event(config_.context),
                                                          Event(config_.context)},
      in_{PinnedBuffer(config_.context, config_.layout.input_bytes()),
          PinnedBuffer(config_.context, config_.layout.input_bytes())},
      out_{PinnedBuffer(config_.context, config_.layout.output_bytes()),
           PinnedBuffer(config_.context, config_.layout.output_bytes())} {}

// The worker has ended, so nothing is in flight.
GraphServer::~GraphServer() = default;

void GraphServer::started() {
  config_.context->attach(); // a new thread has none
  if (config_.plain != nullptr)
    config_.plain->started();
}

void GraphServer::stop(Job &job) {
  if (config_.plain != nullptr)
    config_.plain->stop(job);
}

void GraphServer::release(RequestId request) {
  for (Cached &cached : cached_) {
    if (cached.owner == request)
      cached.owner = 0;
  }
  if (config_.plain != nullptr)
    config_.plain->release(request);
}

Outcome GraphServer::run(Job &job) {
  if (lost_.has_value())
    return failed(*lost_);
  if (job.length < 1 || job.length > config_.capacity || !graphed(job)) {
    if (config_.plain != nullptr)
      return config_.plain->run(job);
    if (job.length > config_.capacity)
      throw std::runtime_error(std::to_string(job.length) +
                               " tokens exceed the graphs' context of " +
                               std::to_string(config_.capacity));
    throw std::runtime_error(std::string("the ") + whose(job) + " has no graph for this request");
  }
  Cached &cached = cache_for(job);
  try {
    return replay(job, config_.caches[static_cast<std::size_t>(&cached - cached_.data())], cached);
  } catch (const CudaError &error) {
    note(error);
    drain();
    return failed(error);
  }
}

Outcome GraphServer::failed(const CudaError &error) {
  note(error);
  Outcome outcome;
  outcome.kind = Outcome::Kind::kFailed;
  outcome.error = config_.kept ? config_.kept(error) : JobError{error.what(), nullptr};
  outcome.blames_server = true;
  outcome.server_lost = lost_.has_value();
  return outcome;
}

void GraphServer::note(const CudaError &error) {
  if (!lost_.has_value() && error.sticky())
    lost_ = error;
}

// -- what a job needs ---------------------------------------------------------------------------

bool GraphServer::graphed(const Job &job) {
  const SamplingParams &sampling = job.request->sampling;
  if (job.kind == JobKind::kPrefill)
    return sampling.verification == Verification::kCoupled || is_greedy(sampling.temperature);
  if (job.request->hook != nullptr || (job.kind == JobKind::kVerify && sampling.logprobs > 0))
    return false;
  if (sampling.verification == Verification::kRejection && !is_greedy(sampling.temperature))
    return false; // greedily both rules accept the same drafts
  list_edits(job);
  return edits_fit(job);
}

void GraphServer::list_edits(const Job &job) {
  const Position first = first_wanted(job);
  const std::span<const Token> path(job.tokens);
  RowEdits edits(job.request->sampling, path.first(static_cast<std::size_t>(first)),
                 job.request->prompt_tokens);
  edits_.offsets.assign(1, 0);
  edits_.all.clear();
  for (Position position = first; position <= job.length; ++position) {
    edits.each([&](const Edit &edit) { edits_.all.push_back(edit); });
    edits_.offsets.push_back(static_cast<std::int64_t>(edits_.all.size()));
    if (position < job.length)
      edits.push(path[static_cast<std::size_t>(position)]);
  }
}

// Whichever rows share a window.
bool GraphServer::edits_fit(const Job &job) const {
  const auto rows = static_cast<std::size_t>(job.length - first_wanted(job) + 1);
  const auto most = std::min(rows, static_cast<std::size_t>(config_.layout.window));
  for (std::size_t end = most; end <= rows; ++end) {
    if (edits_.offsets[end] - edits_.offsets[end - most] > config_.layout.edits)
      return false;
  }
  return true;
}

// The request's own; else a free one that holds most of its path; else the one unused for longest.
GraphServer::Cached &GraphServer::cache_for(const Job &job) {
  const std::span<const Token> path(job.tokens);
  const auto shared = [&](const Cached &cached) {
    const auto end = std::mismatch(cached.ids.begin(), cached.ids.end(), path.begin(), path.end());
    return end.first - cached.ids.begin();
  };
  Cached *best = nullptr;
  for (Cached &cached : cached_) {
    if (cached.owner == job.request->id) {
      best = &cached;
      break;
    }
    const bool better =
        best == nullptr ||
        (cached.owner == 0 && (best->owner != 0 || shared(cached) > shared(*best))) ||
        (cached.owner != 0 && best->owner != 0 && cached.used < best->used);
    best = better ? &cached : best;
  }
  best->owner = job.request->id;
  best->used = ++uses_;
  best->ids.resize(static_cast<std::size_t>(shared(*best)));
  return *best;
}

std::vector<GraphServer::Window> GraphServer::windows_of(const Job &job, Position start,
                                                         const GraphCache &cache) const {
  const Position end = job.kind == JobKind::kPrefill ? job.length - 1 : job.length;
  std::vector<Window> windows;
  while (start < end) {
    // The shortest that holds what is left; near the end of the cache the longest that fits.
    auto graph = std::lower_bound(
        cache.windows.begin(), cache.windows.end(), end - start,
        [](const WindowGraph &window, Position left) { return window.length < left; });
    graph -= graph == cache.windows.end() ? 1 : 0;
    while (start + graph->length > config_.capacity)
      --graph; // ends: length 1 fits
    const Position count = std::min<Position>(graph->length, end - start);
    windows.push_back({&*graph, start, static_cast<int>(count), start + count >= wanted_});
    start += count;
  }
  return windows;
}

// -- the replay ---------------------------------------------------------------------------------

Outcome GraphServer::replay(Job &job, const GraphCache &graphs, Cached &cached) {
  wanted_ = first_wanted(job);
  tokens_.clear();
  status_.clear();
  logprobs_.clear();
  // The input behind which the first wanted row stands is computed again if need be.
  const Position last_useful = job.kind == JobKind::kPrefill ? job.length : wanted_ - 1;
  const Position start = std::min(static_cast<Position>(cached.ids.size()), last_useful);
  cached.ids.resize(static_cast<std::size_t>(start));
  if (!launch_all(job, windows_of(job, start, graphs), cached)) {
    Outcome outcome;
    outcome.kind = Outcome::Kind::kStopped;
    return outcome;
  }
  return verdict(job);
}

// False where the job was stopped. What was launched is over when this returns.
bool GraphServer::launch_all(Job &job, const std::vector<Window> &windows, Cached &cached) {
  const std::span<const Token> path(job.tokens);
  // Launches are counted over all jobs; number n has event n modulo kInFlight.
  const auto make_room = [&](std::uint64_t in_flight) {
    while (launched_ - finished_ > in_flight) {
      events_[finished_ % kInFlight].wait();
      ++finished_;
    }
  };
  std::size_t taken = 0;
  for (std::size_t index = 0; index < windows.size(); ++index) {
    const Window &window = windows[index];
    const std::size_t slot = index % kInFlight;
    for (const GraphExec &segment : window.graph->segments) {
      make_room(kInFlight - 1);
      if (job.stopped.load(std::memory_order_relaxed)) {
        make_room(0);
        return false;
      }
      const bool first = &segment == &window.graph->segments.front();
      const bool last = &segment == &window.graph->segments.back();
      if (first) {
        // The window two before is over: each has a launch of its own at least.
        for (; taken + kInFlight <= index; ++taken)
          take_rows(windows[taken], taken % kInFlight);
        copy_in(job, window, slot);
      }
      stream_.launch(segment.get());
      if (last && window.read)
        stream_.copy_out(out_[slot].data(), config_.outputs, config_.layout.output_bytes());
      events_[launched_ % kInFlight].record(stream_);
      ++launched_;
    }
    const auto begin = path.begin() + window.start;
    cached.ids.insert(cached.ids.end(), begin, begin + window.count);
  }
  make_room(0);
  for (; taken < windows.size(); ++taken)
    take_rows(windows[taken], taken % kInFlight);
  return true;
}

// Waits for whatever is on the device, after an error: the memory it works on is about to be used
// again. What was computed nobody knows, so nothing counts as cached.
void GraphServer::drain() noexcept {
  finished_ = launched_;
  for (Cached &cached : cached_)
    cached.ids.clear();
  try {
    stream_.synchronize();
  } catch (const CudaError &error) {
    note(error);
  }
}

void GraphServer::copy_in(const Job &job, const Window &window, std::size_t slot) {
  const SamplingParams &sampling = job.request->sampling;
  const GraphLayout &layout = config_.layout;
  const PinnedBuffer &block = in_[slot];
  GraphHeader header;
  header.start = window.start;
  header.position = window.start + 1;
  header.seed = sampling.seed;
  header.count = window.count;
  header.temperature = sampling.temperature;
  if (!is_greedy(sampling.temperature)) {
    header.top_k = sampling.top_k;
    header.top_p = sampling.top_p;
    header.min_p = sampling.min_p;
  }
  std::memcpy(block.data(), &header, sizeof(header));
  auto *ids = at<Token>(block, layout.ids());
  std::fill(std::copy_n(job.tokens.data() + window.start, window.count, ids), ids + layout.window,
            0);
  auto *offsets = at<std::int64_t>(block, layout.offsets());
  auto *edit_ids = at<Token>(block, layout.edit_ids());
  auto *operations = at<std::int32_t>(block, layout.edit_operations());
  auto *values = at<float>(block, layout.edit_values());
  std::int64_t listed = 0;
  for (int row = 0; row < layout.window; ++row) {
    offsets[row] = listed;
    const Position position = window.start + 1 + row;
    if (!window.read || row >= window.count || position < wanted_)
      continue;
    const auto index = static_cast<std::size_t>(position - wanted_);
    for (std::int64_t i = edits_.offsets[index]; i < edits_.offsets[index + 1]; ++i, ++listed) {
      const Edit &edit = edits_.all[static_cast<std::size_t>(i)];
      edit_ids[listed] = edit.id;
      operations[listed] = static_cast<std::int32_t>(edit.operation);
      values[listed] = edit.value;
    }
  }
  offsets[layout.window] = listed;
  stream_.copy_in(config_.inputs, block.data(),
                  listed > 0 ? layout.input_bytes() : layout.input_bytes_unedited());
}

void GraphServer::take_rows(const Window &window, std::size_t slot) {
  if (!window.read)
    return;
  const GraphLayout &layout = config_.layout;
  const Position before = std::max<Position>(0, wanted_ - (window.start + 1));
  const auto append = [&](auto &to, const auto *from) {
    to.insert(to.end(), from + before, from + window.count);
  };
  append(tokens_, at<const Token>(out_[slot], layout.tokens()));
  append(status_, at<const std::int32_t>(out_[slot], layout.status()));
  append(logprobs_, at<const float>(out_[slot], layout.logprobs()));
}

// -- what it says -------------------------------------------------------------------------------

RowStatus GraphServer::status_of(std::size_t row) const {
  if ((status_[row] & kNaNSeen) != 0)
    return RowStatus::kNaN;
  if ((status_[row] & kInfinitySeen) != 0)
    return RowStatus::kInfinite;
  return tokens_[row] < 0 ? RowStatus::kNothingLeft : RowStatus::kOk;
}

// As Judge says it: a row that cannot be drawn from ends the window, as does the first mismatch.
Outcome GraphServer::verdict(const Job &job) {
  Outcome outcome;
  for (std::size_t row = 0; row < tokens_.size(); ++row) {
    const Position position = wanted_ + static_cast<Position>(row);
    const RowStatus status = status_of(row);
    if (status != RowStatus::kOk) {
      if (row == 0) {
        outcome.kind = Outcome::Kind::kFailed;
        outcome.error.message = undrawable(whose(job), position, status);
      }
      return outcome;
    }
    if (tokens_[row] >= config_.vocab_size)
      throw std::runtime_error(std::string("a graph of the ") + whose(job) + " drew id " +
                               std::to_string(tokens_[row]) + " of " +
                               std::to_string(config_.vocab_size));
    if (job.kind == JobKind::kDraft) {
      outcome.drafts.push_back(Draft{tokens_[row], nullptr});
      return outcome;
    }
    const bool with_logprob = job.request->sampling.logprobs >= 0;
    outcome.rows.push_back(
        JudgedRow{tokens_[row], with_logprob ? logprobs_[row] : 0.0F, {}, false});
    if (position < job.length && tokens_[row] != job.tokens[static_cast<std::size_t>(position)])
      return outcome;
  }
  return outcome;
}

} // namespace dsi::cuda
