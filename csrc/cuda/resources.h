// What a server owns on a device: each object releases what it holds, in whichever order they go.
// Constructors and methods throw CudaError; destructors never do, and give up silently on a device
// that is broken. All are movable, and used by one thread at a time unless said otherwise.
#pragma once

#include <memory>

#include "cuda/driver.h"

namespace dsi::cuda {

// The primary context of one device, the one that torch uses too. Thread-safe.
class Context {
public:
  Context(std::shared_ptr<const Driver> driver, int device);
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  const Api &api() const { return driver_->api(); }
  int device() const { return device_; }
  void check(Result code, const char *call) const { driver_->check(code, call); }

  // Makes the context current on this thread until the thread ends: for threads of our own.
  void attach() const;

  // The context is current on this thread for the life of the object, and what was current before
  // is so again afterwards: on a thread of Python's, torch keeps its device there.
  class Current {
  public:
    explicit Current(const Context &context);
    ~Current();
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;

  private:
    const Context &context_;
  };

private:
  std::shared_ptr<const Driver> driver_;
  int device_;
  DeviceHandle handle_ = 0;
  ContextObject *context_ = nullptr;
};

using SharedContext = std::shared_ptr<const Context>;

// A queue of work on the device, in order; without order to the default stream. Enqueueing is fast
// unless the driver's own queue is full.
class Stream {
public:
  // Lower is more urgent, and 0 least; numbers outside the device's range are clamped to it.
  explicit Stream(SharedContext context, int priority = 0);

  // `host` is pinned and stays as it is until the copy is over.
  void copy_in(DevicePointer to, const void *host, std::size_t bytes);
  void copy_out(void *host, DevicePointer from, std::size_t bytes);
  void launch(GraphExecObject *graph);
  void synchronize(); // blocks
  StreamObject *get() const { return stream_.get(); }

private:
  struct Destroy {
    SharedContext context;
    void operator()(StreamObject *stream) const;
  };
  std::unique_ptr<StreamObject, Destroy> stream_;
};

// A mark in a stream. An error of the work before it is reported by the calls that ask.
class Event {
public:
  explicit Event(SharedContext context);
  void record(const Stream &stream);
  bool reached() const; // does not block; true too where never recorded
  void wait() const;    // blocks without spinning
private:
  struct Destroy {
    SharedContext context;
    void operator()(EventObject *event) const;
  };
  std::unique_ptr<EventObject, Destroy> event_;
};

// Host memory that the device copies from and to without a detour, zeroed.
class PinnedBuffer {
public:
  // mapped: kernels may read and write it in place, through device_pointer().
  PinnedBuffer(SharedContext context, std::size_t bytes, bool mapped = false);
  void *data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  DevicePointer device_pointer() const { return device_; } // 0 unless mapped

private:
  struct Free {
    SharedContext context;
    void operator()(void *memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_;
  DevicePointer device_ = 0;
};

class DeviceBuffer {
public:
  DeviceBuffer(SharedContext context, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer &&other) noexcept;
  DeviceBuffer &operator=(DeviceBuffer &&other) noexcept;
  DevicePointer pointer() const { return pointer_; }
  std::size_t bytes() const { return bytes_; }

private:
  SharedContext context_;
  std::size_t bytes_;
  DevicePointer pointer_ = 0;
};

// A captured graph, ready to launch. Copies share it; the last one lets go of it.
class GraphExec {
public:
  GraphExec() = default;
  // Destroys the graph in the end.
  static GraphExec adopted(SharedContext context, GraphExecObject *graph);
  // `owner` destroys the graph, and keeps it and the memory it works on until it goes itself.
  static GraphExec borrowed(GraphExecObject *graph, std::shared_ptr<void> owner);
  GraphExecObject *get() const { return graph_.get(); }

private:
  explicit GraphExec(std::shared_ptr<GraphExecObject> graph) : graph_(std::move(graph)) {}
  std::shared_ptr<GraphExecObject> graph_;
};

} // namespace dsi::cuda
