// A CUDA driver without a device, for tests: the entry points of csrc/cuda/api.h, and the switches
// below. A device's memory is the host's, a stream is a queue served by a thread, a graph is a
// callback. What a driver would take as a mistake fails here too: handles that are none, no context
// on the calling thread, copies from memory that is not pinned.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Everything as at the start: `devices` of them, whole, no faults. No object may be left.
void fake_cuda_reset(int devices);
void fake_cuda_set_init(int code); // what cuInit returns
void fake_cuda_set_version(int version);

// The call of `symbol` after `after` more of them, on whichever thread, returns `code`, once.
void fake_cuda_fail(const char *symbol, int code, int after);
// From now on every call that concerns the device returns `code`, and nothing runs there.
void fake_cuda_break(int device, int code);

// A graph for `device`: `delay_ns` of nothing, then run(user) on the stream's thread. What it
// returns breaks the device unless it is 0. Destroyed by cuGraphExecDestroy.
typedef int (*fake_cuda_kernel)(void *user);
void *fake_cuda_graph(int device, fake_cuda_kernel run, void *user, long long delay_ns);

// The graph of one segment of a forward, as csrc/cuda/graph_server.h replays it: the first segment
// writes the ids into the cache, the last one draws what a ToyModel says behind each prefix in it.
typedef struct {
  int device;
  unsigned long long inputs; // of the device's memory, laid out by GraphLayout{widest, edits}
  unsigned long long outputs;
  int widest;
  int edits;
  int *cache; // [capacity], read and written on streams only
  int capacity;
  int length; // ids of this window
  int segment;
  int segments;
  unsigned long long seed; // of the model
  int vocab_size;
  double acceptance; // of the drafter; negative: the target
  long long delay_ns;
  fake_cuda_kernel before; // null, or run first on the stream's thread; what it returns counts
  void *user;
} fake_cuda_toy;
void *fake_cuda_toy_graph(const fake_cuda_toy *toy); // copied

// A block of the device's memory, zeroed, for callers without a context; cuMemFree gives it back.
unsigned long long fake_cuda_memory(long long bytes);

int fake_cuda_live(void); // objects and retained contexts that nobody has given back
long long fake_cuda_calls(const char *symbol);
// Times on the steady clock in ns: each call of cuMemcpyHtoDAsync as 'i', of cuGraphLaunch as 'l',
// and each event that a stream reached as 'e', in order. At most `most` of the newest; forgotten by
// fake_cuda_reset.
typedef struct {
  long long at_ns;
  int kind;
} fake_cuda_moment;
int fake_cuda_moments(fake_cuda_moment *moments, int most);
// Computes until *end is not 0: for benchmarks that want a core kept busy.
void fake_cuda_spin(const volatile int *end);

#ifdef __cplusplus
}
#endif
