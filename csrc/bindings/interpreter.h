// Living with the interpreter: leaving and taking the GIL, owning Python objects from native
// threads, and what happens at its exit and after a fork.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "core/types.h"
#include "runtime/channel.h"

namespace dsi::py {

namespace nb = nanobind;

// The GIL is given up for the life of this object, on the thread that holds it. While the
// interpreter exits, any thread but the main one and the engines' workers, which at_exit() waits
// for, stays in the destructor for ever: taking the GIL then would kill it (python/cpython#87135),
// and at_exit() must know that nobody is about to.
class NativeSection {
public:
  NativeSection();
  ~NativeSection();
  NativeSection(const NativeSection &) = delete;
  NativeSection &operator=(const NativeSection &) = delete;

private:
  PyThreadState *state_;
};

// Gives the calling thread, which has none, a Python thread state for the rest of its life. Without
// one, every acquisition of the GIL makes and drops one under a lock that a fork copies while it is
// held: children of a busy process then hang in CPython 3.11 before they run a line of their own.
// Whoever joins the thread must not hold the GIL.
void stay_attached();

// A reference that may be copied and dropped on any thread, with or without the GIL. Made with the
// GIL.
using SharedObject = std::shared_ptr<PyObject>;
SharedObject share(nb::handle object);

// The Python exception `error` as a failed job, message "Type: text". Needs the GIL.
JobError job_error(const nb::python_error &error);

// Raises dsi_native.errors.<the one for `trouble`>, with error.cause as __cause__. Needs the GIL.
// Closed on a daemon thread while the interpreter exits: does not return.
[[noreturn]] void raise(Trouble trouble, const JobError &error);
[[noreturn]] void raise_closed(const char *message);

bool on_main_thread();
// True from at_exit() on: nothing may be started any more.
bool exiting();

// Run by atexit, before the interpreter starts to go away: no native thread may want the GIL
// afterwards.
void at_exit();
// Run in a forked child: the parent's threads do not exist here.
void after_fork();

// What at_exit() has to end. Both are thread-safe; `close` may block and needs no GIL.
class Closable {
public:
  virtual ~Closable() = default;
  virtual void close() = 0;
};
void enlist(const std::shared_ptr<Closable> &closable);
// For an owner that is destroyed on a thread that cannot wait for it: kept until at_exit() closes
// it.
void close_later(std::shared_ptr<Closable> closable);

void bind_interpreter(nb::module_ &module);

} // namespace dsi::py
