#include "cuda/resources.h"

#include <cstring>
#include <utility>

namespace dsi::cuda {

namespace {

// For destructors: does `call` with the context current, whatever comes of it.
template <typename Call> void give_back(const Context &context, Call call) noexcept {
  try {
    const Context::Current current(context);
    call();
  } catch (const CudaError &) { // NOLINT(bugprone-empty-catch): the device is broken, and with it
                                // went what was to be given back
  }
}

} // namespace

Context::Context(std::shared_ptr<const Driver> driver, int device)
    : driver_(std::move(driver)), device_(device) {
  check(api().device_get(&handle_, device), "cuDeviceGet");
  check(api().context_retain(&context_, handle_), "cuDevicePrimaryCtxRetain");
}

Context::~Context() { api().context_release(handle_); }

void Context::attach() const { check(api().context_push(context_), "cuCtxPushCurrent"); }

Context::Current::Current(const Context &context) : context_(context) { context.attach(); }

Context::Current::~Current() {
  ContextObject *popped = nullptr;
  context_.api().context_pop(&popped);
}

Stream::Stream(SharedContext context, int priority)
    : stream_(nullptr, Destroy{std::move(context)}) {
  const Context &on = *stream_.get_deleter().context;
  const Context::Current current(on);
  StreamObject *stream = nullptr;
  on.check(on.api().stream_create(&stream, kStreamNonBlocking, priority),
           "cuStreamCreateWithPriority");
  stream_.reset(stream);
}

void Stream::Destroy::operator()(StreamObject *stream) const {
  give_back(*context, [&] { context->api().stream_destroy(stream); });
}

void Stream::copy_in(DevicePointer to, const void *host, std::size_t bytes) {
  const Context &on = *stream_.get_deleter().context;
  on.check(on.api().copy_in(to, host, bytes, get()), "cuMemcpyHtoDAsync");
}

void Stream::copy_out(void *host, DevicePointer from, std::size_t bytes) {
  const Context &on = *stream_.get_deleter().context;
  on.check(on.api().copy_out(host, from, bytes, get()), "cuMemcpyDtoHAsync");
}

void Stream::launch(GraphExecObject *graph) {
  const Context &on = *stream_.get_deleter().context;
  on.check(on.api().graph_launch(graph, get()), "cuGraphLaunch");
}

void Stream::synchronize() {
  const Context &on = *stream_.get_deleter().context;
  on.check(on.api().stream_synchronize(get()), "cuStreamSynchronize");
}

Event::Event(SharedContext context) : event_(nullptr, Destroy{std::move(context)}) {
  const Context &on = *event_.get_deleter().context;
  const Context::Current current(on);
  EventObject *event = nullptr;
  on.check(on.api().event_create(&event, kEventBlockingSync | kEventDisableTiming),
           "cuEventCreate");
  event_.reset(event);
}

void Event::Destroy::operator()(EventObject *event) const {
  give_back(*context, [&] { context->api().event_destroy(event); });
}

void Event::record(const Stream &stream) {
  const Context &on = *event_.get_deleter().context;
  on.check(on.api().event_record(event_.get(), stream.get()), "cuEventRecord");
}

bool Event::reached() const {
  const Context &on = *event_.get_deleter().context;
  const Result code = on.api().event_query(event_.get());
  if (code == kNotReady)
    return false;
  on.check(code, "cuEventQuery");
  return true;
}

void Event::wait() const {
  const Context &on = *event_.get_deleter().context;
  on.check(on.api().event_synchronize(event_.get()), "cuEventSynchronize");
}

PinnedBuffer::PinnedBuffer(SharedContext context, std::size_t bytes, bool mapped)
    : memory_(nullptr, Free{std::move(context)}), bytes_(bytes) {
  const Context &on = *memory_.get_deleter().context;
  const Context::Current current(on);
  void *memory = nullptr;
  on.check(on.api().host_allocate(&memory, bytes, kHostPortable | (mapped ? kHostMapped : 0U)),
           "cuMemHostAlloc");
  memory_.reset(memory);
  std::memset(memory, 0, bytes);
  if (mapped)
    on.check(on.api().host_device_pointer(&device_, memory, 0), "cuMemHostGetDevicePointer");
}

void PinnedBuffer::Free::operator()(void *memory) const {
  give_back(*context, [&] { context->api().host_free(memory); });
}

DeviceBuffer::DeviceBuffer(SharedContext context, std::size_t bytes)
    : context_(std::move(context)), bytes_(bytes) {
  const Context::Current current(*context_);
  context_->check(context_->api().device_allocate(&pointer_, bytes), "cuMemAlloc");
}

DeviceBuffer::DeviceBuffer(DeviceBuffer &&other) noexcept
    : context_(std::move(other.context_)), bytes_(std::exchange(other.bytes_, 0)),
      pointer_(std::exchange(other.pointer_, 0)) {}

DeviceBuffer &DeviceBuffer::operator=(DeviceBuffer &&other) noexcept {
  std::swap(context_, other.context_);
  std::swap(bytes_, other.bytes_);
  std::swap(pointer_, other.pointer_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (pointer_ != 0)
    give_back(*context_, [&] { context_->api().device_free(pointer_); });
}

GraphExec GraphExec::adopted(SharedContext context, GraphExecObject *graph) {
  return GraphExec({graph, [context = std::move(context)](GraphExecObject *owned) {
                      give_back(*context, [&] { context->api().graph_destroy(owned); });
                    }});
}

GraphExec GraphExec::borrowed(GraphExecObject *graph, std::shared_ptr<void> owner) {
  return GraphExec({std::move(owner), graph});
}

} // namespace dsi::cuda
