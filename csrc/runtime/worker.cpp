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

Worker::Worker(int index, std::string name, std::unique_ptr<Server> server, OnCompleted on_completed, OnLost on_lost)
    : index_(index), name_(std::move(name)), server_(std::move(server)), on_completed_(std::move(on_completed)),
      on_lost_(std::move(on_lost)) {}

void Worker::start() {
  thread_ = std::jthread([this] { run(); });
}

void Worker::assign(std::shared_ptr<Job> job) {
  const std::scoped_lock lock(mutex_);
  job_ = std::move(job);
  news_.notify_one();
}

void Worker::stop_job(JobId job, RequestId request) {
  const std::scoped_lock lock(mutex_);
  if (job_ != nullptr && job_->id == job && job_->request->id == request) {
    job_->stopped.store(true, std::memory_order_relaxed); // a flag alone: nothing is published by it
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
    on_lost_(*this, current_error());
  }
  std::unique_lock lock(mutex_);
  while (true) {
    news_.wait(lock, [this] { return job_ != nullptr || !releases_.empty() || stopping_; });
    if (job_ != nullptr) {
      const std::shared_ptr<Job> job = job_;
      lock.unlock();
      run_job(job);
      lock.lock();
    } else if (!releases_.empty()) {
      const std::vector<RequestId> releases = std::exchange(releases_, {});
      lock.unlock();
      for (const RequestId request : releases) {
        try {
          server_->release(request);
        } catch (...) { // NOLINT(bugprone-empty-catch): a cache that cannot be dropped costs memory only
        }
      }
      lock.lock();
    } else {
      return;
    }
  }
}

void Worker::run_job(const std::shared_ptr<Job> &job) {
  Completed completed{job, {}, now_ns(), 0};
  if (job->stopped.load(std::memory_order_relaxed)) {
    completed.outcome.kind = Outcome::Kind::kStopped;
  } else {
    try {
      completed.outcome = server_->run(*job);
    } catch (...) {
      completed.outcome = Outcome{};
      completed.outcome.kind = Outcome::Kind::kFailed;
      completed.outcome.error = current_error();
      completed.outcome.blames_server = true;
    }
  }
  completed.end = now_ns();
  {
    const std::scoped_lock lock(mutex_);
    job_.reset();
  }
  on_completed_(*this, std::move(completed));
}

} // namespace dsi
