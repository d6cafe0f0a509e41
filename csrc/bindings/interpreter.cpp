#include "bindings/interpreter.h"

#include <nanobind/stl/string.h>

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

namespace dsi::py {

namespace {

struct State {
  std::mutex mutex; // guards all below
  std::condition_variable left;
  bool exiting = false;
  int inside = 0; // threads in a NativeSection that will want the GIL back
  int parked = 0;
  std::vector<std::weak_ptr<Closable>> closables;
  std::vector<std::shared_ptr<Closable>> orphans;
};

// Never destroyed: parked threads outlive static destructors. Replaced, not reset, after a fork,
// since the mutex may have been held by a thread that the child does not have.
State *state = new State; // NOLINT(cppcoreguidelines-owning-memory)
unsigned long main_thread = 0;
thread_local bool attached = false; // a worker's thread, see stay_attached()

// Threads that nobody waits for before the interpreter goes: daemons. `state->mutex` held.
bool abandoned() { return state->exiting && !attached && !on_main_thread(); }

[[noreturn]] void park() {
  while (true) {
    ::pause();
  }
}

const char *class_name(Trouble trouble) {
  switch (trouble) {
  case Trouble::kCancelled:
    return "Cancelled";
  case Trouble::kClosed:
    return "Closed";
  case Trouble::kEngineFailed:
    return "EngineFailed";
  default:
    return "RequestFailed";
  }
}

} // namespace

NativeSection::NativeSection() {
  {
    const std::scoped_lock lock(state->mutex);
    ++state->inside;
  }
  state_ = PyEval_SaveThread();
}

NativeSection::~NativeSection() {
  {
    const std::scoped_lock lock(state->mutex);
    if (abandoned()) {
      --state->inside;
      ++state->parked;
      state->left.notify_all();
      state_ = nullptr;
    }
  }
  if (state_ == nullptr) {
    park();
  }
  PyEval_RestoreThread(state_);
  const std::scoped_lock lock(state->mutex);
  --state->inside;
  state->left.notify_all();
}

void stay_attached() {
  struct Attachment {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyThreadState *thread = PyEval_SaveThread();
    Attachment() { attached = true; }
    ~Attachment() {
      if (Py_IsInitialized() != 0) {
        PyEval_RestoreThread(thread);
        PyGILState_Release(gil);
      }
    }
  };
  static thread_local const Attachment attachment;
}

SharedObject share(nb::handle object) {
  return {object.inc_ref().ptr(), [](PyObject *owned) {
            if (Py_IsInitialized() != 0) {
              const nb::gil_scoped_acquire gil;
              Py_DECREF(owned);
            }
          }};
}

JobError job_error(const nb::python_error &error) {
  std::string message = nb::cast<std::string>(error.type().attr("__name__"));
  try {
    const auto text = nb::cast<std::string>(nb::str(error.value()));
    message += text.empty() ? "" : ": " + text;
  } catch (const std::exception &) {
    message += " (whose text could not be had)";
  }
  return {message, share(error.value())};
}

namespace {

// To a daemon, Closed at the exit would be an exception that ends its thread with a traceback; it
// is parked like one that was waiting here.
void park_if_abandoned() {
  {
    const std::scoped_lock lock(state->mutex);
    if (!abandoned()) {
      return;
    }
    ++state->parked;
  }
  PyEval_SaveThread();
  park();
}

} // namespace

void raise(Trouble trouble, const JobError &error) {
  if (trouble == Trouble::kClosed) {
    park_if_abandoned();
  }
  const nb::object type = nb::module_::import_("dsi_native.errors").attr(class_name(trouble));
  nb::object exception = type(error.message);
  if (error.cause != nullptr) {
    auto *cause = static_cast<PyObject *>(error.cause.get());
    PyException_SetCause(exception.ptr(), nb::handle(cause).inc_ref().ptr());
  }
  PyErr_SetObject(type.ptr(), exception.ptr());
  throw nb::python_error();
}

void raise_closed(const char *message) { raise(Trouble::kClosed, {message, nullptr}); }

bool on_main_thread() { return PyThread_get_thread_ident() == main_thread; }

bool exiting() {
  const std::scoped_lock lock(state->mutex);
  return state->exiting;
}

void enlist(const std::shared_ptr<Closable> &closable) {
  const std::scoped_lock lock(state->mutex);
  std::erase_if(state->closables, [](const auto &weak) { return weak.expired(); });
  state->closables.push_back(closable);
}

void close_later(std::shared_ptr<Closable> closable) {
  const std::scoped_lock lock(state->mutex);
  state->orphans.push_back(std::move(closable));
}

void at_exit() {
  const nb::gil_scoped_release release; // on the main thread, and counted by nobody
  std::vector<std::shared_ptr<Closable>> open;
  {
    const std::scoped_lock lock(state->mutex);
    state->exiting = true;
    for (const auto &weak : state->closables) {
      if (auto closable = weak.lock()) {
        open.push_back(std::move(closable));
      }
    }
    std::move(state->orphans.begin(), state->orphans.end(), std::back_inserter(open));
    state->orphans.clear();
  }
  for (const auto &closable : open) {
    closable->close();
  }
  open.clear();
  std::unique_lock lock(state->mutex);
  state->left.wait(lock, [] { return state->inside == 0; });
  if (state->parked > 0) {
    nb::set_leak_warnings(false); // their frames keep objects for ever, by intent
  }
}

void after_fork() {
  nb::set_leak_warnings(false); // the parent's other threads took the frames they held with them
  state = new State;            // NOLINT(cppcoreguidelines-owning-memory): see above
  main_thread = PyThread_get_thread_ident();
}

void bind_interpreter(nb::module_ &module) {
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  module.def("_at_exit", &at_exit);
  module.def("_after_fork", &after_fork);
  nb::module_::import_("atexit").attr("register")(module.attr("_at_exit"));
  nb::module_::import_("os").attr("register_at_fork")(nb::arg("after_in_child") =
                                                          module.attr("_after_fork"));
}

} // namespace dsi::py
