// Makes the order of forwards a test's own decision.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "servers.h"

namespace dsi::test {

// Holds every forward of a slot until the test lets it go.
class Gates {
public:
  void arrive(int slot, RequestId request) {
    std::unique_lock lock(mutex_);
    waiting_[slot] = request;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || pass_[slot] > 0; });
    --pass_[slot];
    waiting_.erase(slot);
    const bool fail = fail_.erase(slot) > 0;
    lock.unlock();
    if (fail)
      throw std::runtime_error("made to fail");
  }
  // The request whose forward waits at `slot`, as soon as one does; 0 where none comes.
  RequestId at(int slot) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return waiting_.contains(slot); });
    return waiting_.contains(slot) ? waiting_[slot] : 0;
  }
  void let_go(int slot, bool fail = false) {
    const std::scoped_lock lock(mutex_);
    waiting_.erase(slot); // so that at() sees the next one
    ++pass_[slot];
    if (fail)
      fail_.insert(slot);
    changed_.notify_all();
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

private:
  std::mutex mutex_; // guards all below
  std::condition_variable changed_;
  std::map<int, RequestId> waiting_;
  std::map<int, int> pass_;
  std::set<int> fail_;
  bool open_ = false;
};

// A server whose forwards wait at `gates`.
inline std::unique_ptr<Server> gated(const ToyModel &model, Gates &gates, int slot) {
  return std::make_unique<ToyServer>(
      model, 0, [&gates, slot](Job &job) { gates.arrive(slot, job.request->id); });
}

} // namespace dsi::test
