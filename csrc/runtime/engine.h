// Serves several Sessions on one pool of servers.
//
// There is no scheduler thread: whichever worker ends a job feeds the Session, and hands out what
// is due next, its own next job included, under one lock that is never held while a server runs.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/dispatch.h"
#include "core/estimate.h"
#include "runtime/channel.h"
#include "runtime/server.h"
#include "runtime/worker.h"

namespace dsi {

// The engine cannot take a request: it is closed (kClosed) or has no target server left
// (kEngineFailed).
class EngineUnusable : public std::exception {
public:
  EngineUnusable(Trouble trouble, JobError error) : trouble_(trouble), error_(std::move(error)) {}
  const char *what() const noexcept override { return error_.message.c_str(); }
  Trouble trouble() const { return trouble_; }
  const JobError &error() const { return error_; }

private:
  Trouble trouble_;
  JobError error_;
};

struct RequestSpec {
  std::vector<Token> prompt;
  SessionConfig session;
  SamplingParams sampling;
  std::shared_ptr<void> hook; // see RequestContext
  DraftMethod method = DraftMethod::kTli;
  bool break_even = false;     // drafting stops while it does not pay
  bool auto_lookahead = false; // session.policy.lookahead follows the measured latencies
  Nanos timeout_ns = 0;        // from submit(); 0: none
  bool record = false;         // Ending::record says what each server did when
};

struct Ticket {
  RequestId id = 0;
  std::shared_ptr<Channel> channel;
};

class Engine {
public:
  struct Config {
    std::vector<std::unique_ptr<Server>> targets; // at least one: SP of them
    std::unique_ptr<Server> drafter;              // null: every request runs as non-SI
    int max_running = 16;                         // further requests wait their turn
    bool one_worker =
        false; // with one target server: the drafter runs on its worker, never beside it
  };

  // Starts one thread per server. Throws std::invalid_argument.
  explicit Engine(Config config);
  ~Engine(); // closes; not on one of its own workers; see on_own_worker()
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  // Thread-safe, does not block. Throws std::invalid_argument (the caller's mistake, nothing
  // changed) or EngineUnusable.
  Ticket submit(RequestSpec spec);
  // Ends one request, others go on. Its reader gets `trouble`. No effect on one that has ended.
  void cancel(RequestId request, Trouble trouble, const std::string &message);
  // Ends every request with kClosed, then waits for forwards that cannot be stopped; on one of its
  // own workers it does not wait. Idempotent, thread-safe.
  void close();
  bool on_own_worker() const;
  int sp() const { return static_cast<int>(targets_); }
  std::size_t unfinished() const; // requests that have not ended

private:
  struct Slot; // a worker and what the engine knows about it
  struct Active;
  using Retired = std::vector<std::unique_ptr<Active>>; // destroyed without the lock

  void completed(Worker &worker, Worker::Completed completed);
  void lost(Worker &worker, const JobError &error);

  // All below: mutex_ held.
  void answer(Active &active, Slot &slot, Worker::Completed &completed);
  void measure(Active &active, Slot &slot, const Worker::Completed &completed);
  static void keep_span(Active &active, const Slot &slot, const Worker::Completed &completed,
                        const Metrics &before);
  static void keep_commits(Active &active, Nanos now);
  std::shared_ptr<const RunRecord> finished_record(const Active &active, Nanos now) const;
  void blame(Slot &slot, RequestId request, const JobError &error);
  void lose(Slot &slot, const JobError &error);
  void follow(Active &active, Retired &retired);
  void follow_all(Retired &retired);
  void end(Active &active);
  void fail(Active &active, Trouble trouble, JobError error);
  void admit();
  void dispatch(Retired &retired);
  void expire(Retired &retired);
  void choose_lookahead();
  void apply_lookahead(Active &active);
  bool give_verify();
  bool give_draft();
  void give_prefills();
  Slot *best_slot(const Active &active);
  std::shared_ptr<Job> make_job(Active &active, JobKind kind, JobId id, Position length,
                                const Slot &slot);
  void assign(Active &active, Slot &slot, std::shared_ptr<Job> job);
  Active &owner(const Session *session) { return *owners_.at(session); }

  mutable std::mutex mutex_; // guards all below but the workers themselves
  std::size_t targets_ = 0;
  Dispatcher dispatcher_;
  std::map<RequestId, std::unique_ptr<Active>>
      actives_; // given to servers, or still running somewhere
  std::deque<std::unique_ptr<Active>> waiting_;
  std::unordered_map<const Session *, Active *> owners_;
  std::size_t running_ = 0;
  std::size_t max_running_;
  RequestId next_request_ = 1;
  std::uint64_t completions_ = 0;
  Estimate estimate_;
  int auto_si_ = 4; // until there are measurements
  int auto_dsi_ = 1;
  int auto_run_ahead_ = 8;
  int auto_window_ = 16;
  bool closing_ = false;
  bool failed_ = false;
  JobError failure_;
  std::mutex close_mutex_; // one thread joins at a time
  // Targets first, then the drafter. Last: their threads end before anything they use is gone.
  std::vector<std::unique_ptr<Slot>> slots_;
  Slot *drafter_ = nullptr; // the slot that drafts
};

} // namespace dsi
