// One named thread, one server, one job at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/clock.h"
#include "runtime/server.h"

namespace dsi {

// The completion runs on the worker's thread with no lock held. It may assign the next job at once,
// which then starts without another thread being woken: that is why the scheduler has no thread.
class Worker {
public:
  struct Completed {
    std::shared_ptr<Job> job;
    Outcome outcome;
    Nanos start = 0;
    Nanos end = 0;
  };
  using OnCompleted = std::function<void(Worker &, Completed)>;
  using OnLost = std::function<void(Worker &, JobError)>; // the server could not be started

  Worker(int index, std::string name, std::unique_ptr<Server> server, OnCompleted on_completed,
         OnLost on_lost);
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;
  ~Worker() { close(); }

  void start();                          // call once, when the callbacks' owner is ready
  void assign(std::shared_ptr<Job> job); // the worker is idle
  void stop_job(JobId job, RequestId request);
  void release(RequestId request);
  // Stops the current job, then joins: blocks until a forward that cannot be stopped ends. Never
  // throws.
  void close();
  void ask_to_stop(); // the first half of close(), does not block

  int index() const { return index_; }
  const std::string &name() const { return name_; }
  Server &server() { return *server_; }
  bool on_this_thread() const {
    return id_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

private:
  void run();
  void run_job(const std::shared_ptr<Job> &job);
  Outcome outcome_of(Job &job);

  const int index_;
  const std::string name_;
  const std::unique_ptr<Server> server_;
  const OnCompleted on_completed_;
  const OnLost on_lost_;
  std::optional<JobError>
      not_started_; // why started() failed; touched by the worker's thread alone
  // thread_'s own id would race with the join. Relaxed: only the thread itself can find its id
  // here.
  std::atomic<std::thread::id> id_{};
  std::mutex mutex_; // guards the four below
  std::condition_variable news_;
  std::shared_ptr<Job> job_;
  std::vector<RequestId> releases_;
  bool stopping_ = false;
  std::jthread thread_; // last: joined before anything it uses is gone
};

// The message of the exception being handled, and the exception itself as an opaque cause.
JobError current_error();

// Lets the bindings keep what they know about an exception in JobError::cause.
class CausedError : public std::exception {
public:
  explicit CausedError(JobError error) : error_(std::move(error)) {}
  const char *what() const noexcept override { return error_.message.c_str(); }
  const JobError &error() const { return error_; }

private:
  JobError error_;
};

} // namespace dsi
