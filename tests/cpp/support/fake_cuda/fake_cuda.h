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

int fake_cuda_live(void); // objects and retained contexts that nobody has given back
long long fake_cuda_calls(const char *symbol);
// Of the calling thread's choice: when cuGraphLaunch was last called, and when a stream last
// reached an event, on the steady clock in ns. Over all devices.
long long fake_cuda_last_launch_ns(void);
long long fake_cuda_last_event_ns(void);

#ifdef __cplusplus
}
#endif
