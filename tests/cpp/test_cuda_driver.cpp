// The driver's loader, and what it owns, against a driver without a device.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "cuda/driver.h"
#include "cuda/resources.h"
#include "support/graph_rig.h"

using namespace dsi;
using namespace dsi::cuda;
using namespace dsi::test;

namespace {

std::shared_ptr<const Driver> driver() {
  Opened opened = Driver::open(DSI_FAKE_CUDA);
  REQUIRE_MESSAGE(opened.driver != nullptr, opened.reason);
  return opened.driver;
}

SharedContext context(int device = 0) { return std::make_shared<Context>(driver(), device); }

int add_one(void *number) {
  ++*static_cast<int *>(number);
  return 0;
}

template <typename Call> CudaError error_of(Call call) {
  try {
    call();
  } catch (const CudaError &error) {
    return error;
  }
  FAIL("no CudaError");
  return {"", 0, ""};
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a driver says its version and its devices") {
  const FakeMachine machine(2);
  fake_cuda_set_version(12040);
  const Opened opened = Driver::open(DSI_FAKE_CUDA);
  REQUIRE(opened.driver != nullptr);
  CHECK(opened.reason.empty());
  CHECK(opened.driver->version() == 12040);
  CHECK(opened.driver->device_names() == std::vector<std::string>{"Fake GPU 0", "Fake GPU 1"});
}

TEST_CASE("no driver: a reason for each way there is") {
  const FakeMachine machine;
  const auto reason = [](const std::string &library) {
    const Opened opened = Driver::open(library);
    CHECK(opened.driver == nullptr);
    CHECK_FALSE(opened.reason.empty());
    return opened;
  };
  SUBCASE("no library") {
    const Opened opened = reason("libno-such-driver.so.1");
    CHECK(contains(opened.reason, "no driver library"));
    CHECK(contains(opened.reason, "libno-such-driver.so.1"));
    CHECK(opened.code == 0);
  }
  SUBCASE("a library that is something else") {
    CHECK(contains(reason("libm.so.6").reason, "libm.so.6 is no CUDA driver"));
    CHECK(contains(reason("libm.so.6").reason, "it has no cuInit"));
  }
  SUBCASE("too old") {
    fake_cuda_set_version(11080);
    CHECK(contains(reason(DSI_FAKE_CUDA).reason, "for CUDA 11.8, needed is one for 12.0"));
    CHECK(fake_cuda_calls("cuInit") == 0);
  }
  SUBCASE("a driver without a device") {
    fake_cuda_set_init(100);
    CHECK(reason(DSI_FAKE_CUDA).reason == "cuInit: CUDA_ERROR_NO_DEVICE (100)");
    CHECK(reason(DSI_FAKE_CUDA).code == 100);
  }
  SUBCASE("an error that it has no name for") {
    fake_cuda_set_init(7777);
    CHECK(reason(DSI_FAKE_CUDA).reason == "cuInit: unknown error (7777)");
  }
  SUBCASE("a device list that is empty, or cannot be read") {
    fake_cuda_reset(0);
    CHECK(contains(reason(DSI_FAKE_CUDA).reason, "sees no device"));
    fake_cuda_fail("cuDeviceGetCount", 999, 0);
    CHECK(reason(DSI_FAKE_CUDA).reason == "cuDeviceGetCount: CUDA_ERROR_UNKNOWN (999)");
  }
}

TEST_CASE("ids go in, a graph runs, verdicts come out, in the stream's order") {
  const FakeMachine machine;
  const SharedContext on = context();
  on->attach(); // this thread is the test's own
  Stream stream(on, -5);
  Event event(on);
  const PinnedBuffer in(on, sizeof(int));
  const PinnedBuffer out(on, sizeof(int));
  const DeviceBuffer device(on, sizeof(int));
  CHECK(event.reached()); // never recorded
  const GraphExec graph = GraphExec::adopted(
      on, static_cast<GraphExecObject *>(
              fake_cuda_graph(0, add_one, reinterpret_cast<void *>(device.pointer()), 2'000'000)));
  *static_cast<int *>(in.data()) = 41;
  stream.copy_in(device.pointer(), in.data(), sizeof(int));
  stream.launch(graph.get());
  stream.copy_out(out.data(), device.pointer(), sizeof(int));
  event.record(stream);
  event.wait();
  CHECK(event.reached());
  CHECK(*static_cast<int *>(out.data()) == 42);
  stream.launch(graph.get());
  stream.synchronize();
  ContextObject *popped = nullptr;
  on->api().context_pop(&popped);
}

TEST_CASE("a query does not wait") {
  const FakeMachine machine;
  const SharedContext on = context();
  const Context::Current current(*on);
  Stream stream(on);
  Event event(on);
  std::atomic<bool> open = false;
  const auto wait_for = [](void *flag) {
    while (!static_cast<std::atomic<bool> *>(flag)->load())
      std::this_thread::yield();
    return 0;
  };
  const GraphExec graph = GraphExec::adopted(
      on, static_cast<GraphExecObject *>(fake_cuda_graph(0, wait_for, &open, 0)));
  stream.launch(graph.get());
  event.record(stream);
  CHECK_FALSE(event.reached());
  open = true;
  event.wait();
  CHECK(event.reached());
}

TEST_CASE("mapped memory has an address on the device") {
  const FakeMachine machine;
  const SharedContext on = context();
  PinnedBuffer mapped(on, 64, true);
  CHECK(mapped.device_pointer() != 0);
  CHECK(static_cast<char *>(mapped.data())[63] == 0);
  CHECK(PinnedBuffer(on, 64).device_pointer() == 0);
  PinnedBuffer other = std::move(mapped);
  CHECK(other.bytes() == 64);
}

TEST_CASE("a call that fails throws its name and code, and leaves nothing behind") {
  const FakeMachine machine;
  const SharedContext on = context();
  const auto fails = [&](const char *symbol, auto make) {
    fake_cuda_fail(symbol, 2, 0);
    const CudaError error = error_of(make);
    CHECK(std::string(error.what()) == std::string(symbol) + ": CUDA_ERROR_OUT_OF_MEMORY (2)");
    CHECK(error.code() == 2);
    CHECK(error.name() == "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_FALSE(error.sticky());
  };
  fails("cuStreamCreateWithPriority", [&] { const Stream stream(on); });
  fails("cuEventCreate", [&] { const Event event(on); });
  fails("cuMemHostAlloc", [&] { const PinnedBuffer buffer(on, 8); });
  fails("cuMemHostGetDevicePointer", [&] { const PinnedBuffer buffer(on, 8, true); });
  fails("cuMemAlloc", [&] { const DeviceBuffer buffer(on, 8); });
  fails("cuCtxPushCurrent", [&] { const DeviceBuffer buffer(on, 8); });
  fails("cuDevicePrimaryCtxRetain", [&] { context(); });
  CHECK(error_of([&] { context(1); }).code() == 101);
  const Context::Current current(*on);
  Stream stream(on);
  Event event(on);
  fails("cuEventRecord", [&] { event.record(stream); });
  fails("cuEventQuery", [&] { static_cast<void>(event.reached()); });
  fails("cuEventSynchronize", [&] { event.wait(); });
  fails("cuStreamSynchronize", [&] { stream.synchronize(); });
}

TEST_CASE("work without a context, or on memory that is not pinned, is refused") {
  const FakeMachine machine;
  const SharedContext on = context();
  Stream stream(on);
  const DeviceBuffer device(on, 8);
  const PinnedBuffer pinned(on, 8);
  CHECK(error_of([&] { stream.copy_in(device.pointer(), pinned.data(), 8); }).code() == 201);
  const Context::Current current(*on);
  int pageable = 0;
  CHECK(error_of([&] { stream.copy_in(device.pointer(), &pageable, 4); }).code() == 1);
  CHECK(error_of([&] { stream.copy_out(pinned.data(), device.pointer(), 9); }).code() == 1);
}

TEST_CASE("a broken device fails every call, and is let go of in silence") {
  const FakeMachine machine(2);
  const SharedContext on = context(0);
  const SharedContext beside = context(1);
  const Context::Current current(*on);
  Stream stream(on);
  Event event(on);
  const DeviceBuffer device(on, 8);
  std::atomic<bool> marked = false;
  const auto crash = [](void *flag) {
    while (!static_cast<std::atomic<bool> *>(flag)->load())
      std::this_thread::yield();
    return 719;
  };
  const GraphExec graph =
      GraphExec::adopted(on, static_cast<GraphExecObject *>(fake_cuda_graph(0, crash, &marked, 0)));
  stream.launch(graph.get());
  event.record(stream);
  marked = true;
  const CudaError error = error_of([&] { event.wait(); });
  CHECK(std::string(error.what()) == "cuEventSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)");
  CHECK(error.sticky());
  CHECK(error_of([&] { stream.launch(graph.get()); }).sticky());
  const Context::Current other(*beside);
  Stream whole(beside);
  whole.synchronize();
}

TEST_CASE("a borrowed graph keeps its owner, and is destroyed by it") {
  const FakeMachine machine;
  const SharedContext on = context();
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = owner;
  auto *raw = static_cast<GraphExecObject *>(fake_cuda_graph(0, nullptr, nullptr, 0));
  {
    const GraphExec graph = GraphExec::borrowed(raw, std::move(owner));
    const GraphExec copy = graph;
    CHECK(copy.get() == raw);
    CHECK_FALSE(seen.expired());
  }
  CHECK(seen.expired());
  CHECK(fake_cuda_calls("cuGraphExecDestroy") == 0);
  const GraphExec last = GraphExec::adopted(on, raw);
}

TEST_CASE("streams of one device and of two run side by side, whoever ends first") {
  const FakeMachine machine(2);
  const SharedContext first = context(0);
  const SharedContext second = context(1);
  std::atomic<int> arrived = 0;
  // Ends only when the other stream runs too.
  const auto meet = [](void *number) {
    auto &here = *static_cast<std::atomic<int> *>(number);
    ++here;
    while (here < 3)
      std::this_thread::yield();
    return 0;
  };
  const auto launched = [&](const SharedContext &on, int device, Stream &stream) {
    GraphExec graph = GraphExec::adopted(
        on, static_cast<GraphExecObject *>(fake_cuda_graph(device, meet, &arrived, 0)));
    const Context::Current current(*on);
    stream.launch(graph.get());
    return graph;
  };
  Stream a(first), b(first), c(second);
  const GraphExec graphs[] = {launched(first, 0, a), launched(first, 0, b), launched(second, 1, c)};
  for (Stream *stream : {&c, &a, &b}) {
    const Context::Current current(*(stream == &c ? second : first));
    stream->synchronize();
  }
  CHECK(arrived == 3);
}
