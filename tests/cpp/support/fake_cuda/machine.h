// What the fake driver is made of: devices, streams with a thread each, marks in them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fake_cuda {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Device {
  std::atomic<int> error{0}; // sticky
  std::atomic<int> retained{0};
};

// A queue and the thread that works it off. Work on a broken device is dropped, not done.
class Stream {
public:
  explicit Stream(Device &device);
  ~Stream(); // after the last piece of work
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;

  using Work = std::function<int()>; // returns what breaks the device, or 0
  std::uint64_t push(Work work);     // its number, from 1
  std::uint64_t last() const;        // the number of the newest piece of work
  bool reached(std::uint64_t number) const;
  void wait(std::uint64_t number) const;
  Device &device() const { return device_; }

private:
  void run();

  Device &device_;
  mutable std::mutex mutex_; // guards all below but the thread
  mutable std::condition_variable changed_;
  std::deque<Work> queue_;
  std::uint64_t pushed_ = 0;
  std::uint64_t done_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

// What a handle points to. `kind` tells a handle of one sort from another.
enum class Kind : std::uint32_t { kStream = 0x57e4, kEvent = 0xe7e4, kGraph = 0x6e4f };

struct StreamHandle {
  Kind kind = Kind::kStream;
  std::shared_ptr<Stream> stream;
};
struct EventHandle {
  Kind kind = Kind::kEvent;
  Device *device = nullptr;
  std::mutex mutex; // guards the two below
  std::shared_ptr<Stream> stream;
  std::uint64_t number = 0;
};
struct GraphHandle {
  Kind kind = Kind::kGraph;
  Device *device = nullptr;
  Stream::Work work;
};

class Machine {
public:
  static Machine &instance();

  // What a call of `symbol` has to return before it does anything: a fault that is due, or 0.
  int due(const char *symbol);

  void reset(int devices);
  int live() const;
  void fail(const std::string &symbol, int code, int after);
  long long calls(const std::string &symbol) const;
  Device *device(int index); // null: there is none
  int device_count() const;

  void keep_block(void *memory, std::size_t bytes, bool pinned);
  bool drop_block(void *memory, bool pinned);
  bool holds(const void *memory, std::size_t bytes, bool pinned) const;

  std::atomic<int> init{0};
  std::atomic<int> version{12080};
  std::atomic<int> objects{0};

  struct Moment {
    std::int64_t at_ns;
    char kind;
  };
  void note(char kind);
  std::vector<Moment> moments() const;

private:
  struct Fault {
    int code = 0;
    int after = 0;
  };
  struct Block {
    std::size_t bytes = 0;
    bool pinned = false;
  };
  Machine() { reset(1); }

  mutable std::mutex mutex_; // guards all below
  std::vector<std::unique_ptr<Device>> devices_;
  std::map<std::string, Fault> faults_;
  std::map<std::string, long long> calls_;
  std::map<std::uintptr_t, Block> blocks_;
  std::deque<Moment> moments_;
};

} // namespace fake_cuda
