#include "runtime/worker.h"

#include <pthread.h>

#include <exception>

namespace dsi {

JobError current_error() {
  try {
    throw;
  } catch (const CausedError &error) {
    return error.error();
  } catch (const std::exception &error) {
    return {error.what(), nullptr};
  } catch (...) {
    return {"an exception that is no std::exception", nullptr};
  }
}

Worker::Worker(int index, std::string name, std::unique_ptr<Server> server,
               OnCompleted on_completed, OnLost on_lost)
    : index_(index), name_(std::move(name)), server_(std::move(server)),
      on_completed_(std::move(on_completed)), on_lost_(std::move(on_lost)) {}

void Worker::start() {
  thread_ = std::jthread([this] {
    id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    run();
    id_.store({}, std::memory_order_relaxed); // the next thread may get the same id
  });
}

void Worker::assign(std::shared_ptr<Job> job) {
  const std::scoped_lock lock(mutex_);
  job_ = std::move(job);
  news_.notify_one();
}

void Worker::stop_job(JobId job, RequestId request) {
  const std::scoped_lock lock(mutex_);
  if (job_ != nullptr && job_->id == job && job_->request->id == request) {
    job_->stopped.store(true,
                        std::memory_order_relaxed); // a flag alone: nothing is published by it
    server_->stop(*job_);
  }
}

void Worker::release(RequestId request) {
  const std::scoped_lock lock(mutex_);
  releases_.push_back(request);
  news_.notify_one();
}

void Worker::ask_to_stop() {
  const std::scoped_lock lock(mutex_);
  stopping_ = true;
  if (job_ != nullptr) {
    job_->stopped.store(true, std::memory_order_relaxed);
    server_->stop(*job_);
  }
  news_.notify_one();
}

void Worker::close() {
  ask_to_stop();
  if (thread_.joinable() && !on_this_thread()) {
    thread_.join();
  }
}

// Ends when close() was called and no job is left. Jobs go before releases: a cache that is kept a
// little longer harms nobody, a forward that starts later does.
void Worker::run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  try {
    server_->started();
  } catch (...) {
    not_started_ = current_error();
    on_lost_(*this, *not_started_);
  }
  std::unique_lock lock(mutex_);
  while (true) {
    news_.wait(lock, [this] { return job_ != nullptr || !releases_.empty() || stopping_; });
    if (job_ != nullptr) {
      std::shared_ptr<Job> job = job_;
      lock.unlock();
      run_job(job);
      job.reset(); // not under the lock: with its last job a request's hook may go, in Python
      lock.lock();
    } else if (!releases_.empty()) {
      const std::vector<RequestId> releases = std::exchange(releases_, {});
      lock.unlock();
      for (const RequestId request : releases) {
        try {
          server_->release(request);
        } catch (
            ...) { // NOLINT(bugprone-empty-catch): a cache that cannot be dropped costs memory only
        }
      }
      lock.lock();
    } else {
      return;
    }
  }
}

Outcome Worker::outcome_of(Job &job) {
  if (job.stopped.load(std::memory_order_relaxed)) {
    return {Outcome::Kind::kStopped, {}, {}, {}, false};
  }
  if (not_started_.has_value()) { // given out before it was known
    return {Outcome::Kind::kFailed, {}, {}, *not_started_, true};
  }
  try {
    Outcome outcome = server_->run(job);
    // Work that comes back undone is offered again, to this server too: that must not go on for
    // ever.
    if (outcome.kind == Outcome::Kind::kStopped && !job.stopped.load(std::memory_order_relaxed)) {
      return {Outcome::Kind::kFailed, {}, {}, {name_ + " stopped unasked", nullptr}, true};
    }
    if (outcome.kind == Outcome::Kind::kDone && job.kind == JobKind::kVerify &&
        outcome.rows.empty()) {
      return {Outcome::Kind::kFailed, {}, {}, {name_ + " returned no rows", nullptr}, true};
    }
    return outcome;
  } catch (...) {
    return {Outcome::Kind::kFailed, {}, {}, current_error(), true};
  }
}

void Worker::run_job(const std::shared_ptr<Job> &job) {
  Completed completed{job, {}, now_ns(), 0};
  completed.outcome = outcome_of(*job);
  completed.end = now_ns();
  {
    const std::scoped_lock lock(mutex_);
    job_.reset();
  }
  on_completed_(*this, std::move(completed));
}

} // namespace dsi
