// Where one request's tokens wait for whoever reads them.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/record.h"
#include "core/session.h"
#include "runtime/clock.h"

namespace dsi {

// Which exception the reader of a failed request gets.
enum class Trouble : std::uint8_t {
  kNone,
  kRequestFailed,
  kTimeout,
  kCancelled,
  kClosed,
  kEngineFailed
};

// How a request ended, and what it cost. Times count from submit().
struct Ending {
  FinishReason reason = FinishReason::kNone;
  Trouble trouble = Trouble::kNone;
  JobError error;
  std::int64_t stop_bytes = -1;
  Metrics metrics;
  Nanos queued_ns = 0;      // until the request was first given to the servers
  Nanos first_token_ns = 0; // 0 where there was none
  Nanos total_ns = 0;
  Nanos target_busy_ns = 0; // forwards of this request, summed over target servers
  Nanos drafter_busy_ns = 0;
  Nanos slot_ns = 0;            // target servers in the pool times the time the request ran
  double target_forward_ns = 0; // estimated time of a forward with the empty window
  double drafter_forward_ns = 0;
  int lookahead = 0;             // in force at the end
  std::int64_t draft_pauses = 0; // see BreakEven
  std::int64_t undrafted = 0;
  std::shared_ptr<const RunRecord> record; // where asked for; times count from submit()
};

// One writer (the engine), any number of readers. Its lock is a leaf: nothing is called while it is
// held.
class Channel {
public:
  Channel() = default;
  Channel(const Channel &) = delete;
  Channel &operator=(const Channel &) = delete;
  ~Channel() {
    if (event_fd_ >= 0) {
      ::close(event_fd_);
    }
  }

  void push(std::vector<JudgedRow> rows) {
    const std::scoped_lock lock(mutex_);
    for (JudgedRow &row : rows) {
      rows_.push_back(std::move(row));
    }
    announce();
  }

  void end(Ending ending) {
    const std::scoped_lock lock(mutex_);
    if (!ending_.has_value()) {
      ending_ = std::move(ending);
      announce();
    }
  }

  // Waits until there are tokens or the end, at most until `deadline` (0: does not wait). Returns
  // the tokens not read before; none after the last one, or where time ran out.
  std::vector<JudgedRow> take(Nanos deadline) {
    std::unique_lock lock(mutex_);
    if (deadline > 0) {
      ready_.wait_until(lock, at_ns(deadline),
                        [&] { return !rows_.empty() || ending_.has_value(); });
    }
    drain_event();
    return std::exchange(rows_, {});
  }

  bool ended() const {
    const std::scoped_lock lock(mutex_);
    return ending_.has_value();
  }
  // Ended, and every token was taken. For a reader that took nothing and asks whether that was the
  // end: between the two calls both the last tokens and the end may have come.
  bool drained() const {
    const std::scoped_lock lock(mutex_);
    return ending_.has_value() && rows_.empty();
  }
  std::optional<Ending> ending() const {
    const std::scoped_lock lock(mutex_);
    return ending_;
  }

  // For a garbage collector: the cause of the failure, where this channel alone still owns it, else
  // null; and the same given away.
  void *own_cause() const {
    const std::scoped_lock lock(mutex_);
    return ending_.has_value() && ending_->error.cause.use_count() == 1 ? ending_->error.cause.get()
                                                                        : nullptr;
  }
  std::shared_ptr<void> give_cause() {
    const std::scoped_lock lock(mutex_);
    return ending_.has_value() ? std::exchange(ending_->error.cause, nullptr) : nullptr;
  }

  // A file descriptor that is readable while there is news; made at the first call. -1 where none
  // can be had. Owned by the channel.
  int event_fd() {
    const std::scoped_lock lock(mutex_);
    if (event_fd_ < 0) {
      event_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      if (!rows_.empty() || ending_.has_value()) {
        announce();
      }
    }
    return event_fd_;
  }

private:
  void announce() { // mutex_ held
    ready_.notify_all();
    if (event_fd_ >= 0) {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(event_fd_, &one, sizeof one);
    }
  }

  void drain_event() { // mutex_ held
    if (event_fd_ >= 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto read = ::read(event_fd_, &count, sizeof count);
    }
  }

  mutable std::mutex mutex_; // guards all below
  std::condition_variable ready_;
  std::vector<JudgedRow> rows_;
  std::optional<Ending> ending_;
  int event_fd_ = -1;
};

} // namespace dsi
