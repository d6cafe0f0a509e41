#include "machine.h"

#include <utility>

namespace fake_cuda {

Stream::Stream(Device &device) : device_(device), thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::uint64_t Stream::push(Work work) {
  const std::scoped_lock lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++pushed_;
}

std::uint64_t Stream::last() const {
  const std::scoped_lock lock(mutex_);
  return pushed_;
}

bool Stream::reached(std::uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  return done_ >= number;
}

void Stream::wait(std::uint64_t number) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || ending_; });
    if (queue_.empty())
      return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (device_.error == 0) {
      if (const int error = work())
        device_.error = error;
    }
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

Machine &Machine::instance() {
  static Machine machine;
  return machine;
}

int Machine::due(const char *symbol) {
  const std::scoped_lock lock(mutex_);
  ++calls_[symbol];
  const auto found = faults_.find(symbol);
  if (found == faults_.end() || found->second.after-- > 0)
    return 0;
  const int code = found->second.code;
  faults_.erase(found);
  return code;
}

void Machine::reset(int devices) {
  const std::scoped_lock lock(mutex_);
  devices_.clear();
  for (int i = 0; i < devices; ++i)
    devices_.push_back(std::make_unique<Device>());
  faults_.clear();
  calls_.clear();
  moments_.clear();
  init = 0;
  version = 12080;
}

int Machine::live() const {
  const std::scoped_lock lock(mutex_);
  int retained = 0;
  for (const auto &device : devices_)
    retained += device->retained;
  return objects + retained + static_cast<int>(blocks_.size());
}

void Machine::fail(const std::string &symbol, int code, int after) {
  const std::scoped_lock lock(mutex_);
  faults_[symbol] = {code, after};
}

long long Machine::calls(const std::string &symbol) const {
  const std::scoped_lock lock(mutex_);
  const auto found = calls_.find(symbol);
  return found == calls_.end() ? 0 : found->second;
}

Device *Machine::device(int index) {
  const std::scoped_lock lock(mutex_);
  const bool exists = index >= 0 && index < static_cast<int>(devices_.size());
  return exists ? devices_[static_cast<std::size_t>(index)].get() : nullptr;
}

int Machine::device_count() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(devices_.size());
}

void Machine::note(char kind) {
  constexpr std::size_t kMost = 100'000;
  const std::scoped_lock lock(mutex_);
  moments_.push_back({now_ns(), kind});
  if (moments_.size() > kMost)
    moments_.pop_front();
}

std::vector<Machine::Moment> Machine::moments() const {
  const std::scoped_lock lock(mutex_);
  return {moments_.begin(), moments_.end()};
}

void Machine::keep_block(void *memory, std::size_t bytes, bool pinned) {
  const std::scoped_lock lock(mutex_);
  blocks_[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, pinned};
}

bool Machine::drop_block(void *memory, bool pinned) {
  const std::scoped_lock lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == blocks_.end() || found->second.pinned != pinned)
    return false;
  blocks_.erase(found);
  return true;
}

bool Machine::holds(const void *memory, std::size_t bytes, bool pinned) const {
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  const std::scoped_lock lock(mutex_);
  auto found = blocks_.upper_bound(at);
  if (found == blocks_.begin())
    return false;
  --found;
  return found->second.pinned == pinned && at + bytes <= found->first + found->second.bytes;
}

} // namespace fake_cuda
