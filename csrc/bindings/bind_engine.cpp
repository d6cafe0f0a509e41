// The engine and its requests as Python sees them. Every call into the engine gives up the GIL
// first, so a thread that holds it never waits for the engine's lock.
#include "bindings/bind_engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "bindings/bind_cuda.h"
#include "bindings/bind_vocabulary.h"
#include "bindings/python_server.h"
#include "runtime/engine.h"

namespace dsi::py {

namespace {

// A wait is cut into slices so that Ctrl-C is heard: Python runs its handler when it is asked to.
constexpr Nanos kSlice = 50'000'000;

// Owns the engine for its Python object; at_exit() closes it while the object still lives.
class EngineCloser final : public Closable {
public:
  EngineCloser(std::unique_ptr<Engine> engine, std::vector<PythonServer *> python_servers)
      : engine_(std::move(engine)), python_servers_(std::move(python_servers)), pid_(::getpid()) {}

  Engine &engine() { return *engine_; }
  bool forked() const { return ::getpid() != pid_; }
  void close() override {
    if (!forked()) {
      engine_->close();
    }
  }
  const std::vector<PythonServer *> &python_servers() const { return python_servers_; }

private:
  std::unique_ptr<Engine> engine_;
  std::vector<PythonServer *> python_servers_; // owned by the engine's workers
  pid_t pid_;
};

class PyTicket;

class PyEngine {
public:
  PyEngine(const nb::list &targets, const nb::object &drafter, int max_running,
           std::int64_t vocab_size, bool one_worker) {
    if (exiting()) {
      raise_closed("the interpreter is exiting: no engine can be made");
    }
    std::vector<PythonServer *> python_servers;
    const auto make = [&](nb::handle spec, std::uint64_t key) {
      std::unique_ptr<Server> server = make_server(spec, key, vocab_size);
      if (PythonServer *python = python_server_of(server.get())) {
        python_servers.push_back(python);
      }
      return server;
    };
    Engine::Config config;
    for (const nb::handle target : targets) {
      config.targets.push_back(make(target, config.targets.size()));
    }
    if (!drafter.is_none()) {
      config.drafter = make(drafter, 1U << 20U);
    }
    config.max_running = max_running;
    config.one_worker = one_worker;
    closer_ = std::make_shared<EngineCloser>(std::make_unique<Engine>(std::move(config)),
                                             std::move(python_servers));
    enlist(closer_);
  }

  PyEngine(const PyEngine &) = delete;
  PyEngine &operator=(const PyEngine &) = delete;

  // The last reference may go on one of the engine's own workers, when Python collects garbage
  // there.
  ~PyEngine() {
    if (closer_ == nullptr) {
      return;
    }
    if (closer_->forked()) {
      new std::shared_ptr<EngineCloser>(
          std::move(closer_)); // its threads do not exist here: leak it
    } else if (closer_->engine().on_own_worker()) {
      {
        const nb::gil_scoped_release release;
        closer_->close(); // tells the workers to end; here nobody can wait for it
      }
      close_later(std::move(closer_));
    } else {
      const NativeSection section;
      closer_->close();
      closer_.reset();
    }
  }

  std::shared_ptr<EngineCloser> usable() const {
    if (closer_ == nullptr) {
      raise_closed("the engine is closed");
    }
    if (closer_->forked()) {
      raise_closed("this engine belongs to the parent process: after a fork, make a new one");
    }
    return closer_;
  }

  void close() {
    if (closer_ == nullptr || closer_->forked()) {
      return;
    }
    if (closer_->engine().on_own_worker()) {
      raise_closed("close() was called from one of the engine's own servers");
    }
    const std::shared_ptr<EngineCloser> closer = closer_;
    const NativeSection section;
    closer->close();
  }

  int traverse(visitproc visit, void *arg) const {
    if (closer_ != nullptr) {
      for (const PythonServer *server : closer_->python_servers()) {
        Py_VISIT(server->object());
      }
    }
    return 0;
  }

  // Part of a cycle of garbage: the servers' objects can only go once their threads have ended.
  void clear() {
    if (closer_ == nullptr || closer_->forked() || closer_->engine().on_own_worker()) {
      return;
    }
    close();
    for (PythonServer *server : closer_->python_servers()) {
      server->clear();
    }
  }

private:
  std::shared_ptr<EngineCloser> closer_;
};

// One request. Keeps its engine's workers in memory but not open: a closed engine ends it with
// Closed.
class PyTicket {
public:
  PyTicket(std::shared_ptr<EngineCloser> closer, Ticket ticket, Nanos deadline)
      : closer_(std::move(closer)), ticket_(std::move(ticket)), deadline_(deadline) {}

  // Tokens not read before, as (id, logprob, [(id, logprob), ...]); [] at the end, or when
  // max_wait_s has passed (negative: no limit). Ctrl-C is heard within 50 ms on the main thread.
  nb::list take(double max_wait_s) {
    check_fork();
    const Nanos limit = max_wait_s < 0 ? 0 : now_ns() + static_cast<Nanos>(max_wait_s * 1e9);
    std::vector<JudgedRow> rows;
    while (true) {
      bool late = false;
      {
        const NativeSection section;
        const std::shared_ptr<EngineCloser> closer = closer_.lock();
        const Nanos now = now_ns();
        Nanos until = now + kSlice;
        until = limit != 0 ? std::min(until, limit) : until;
        until = deadline_ != 0 ? std::min(until, std::max(deadline_, now)) : until;
        rows = ticket_.channel->take(max_wait_s == 0 ? 0 : until);
        late = deadline_ != 0 && now_ns() > deadline_;
        if (rows.empty() && late && closer != nullptr) {
          closer->engine().cancel(ticket_.id, Trouble::kTimeout, "the request ran out of time");
        }
      }
      if (!rows.empty() || ticket_.channel->drained() || (limit != 0 && now_ns() >= limit)) {
        break;
      }
      if (PyErr_CheckSignals() != 0) {
        throw nb::python_error();
      }
    }
    nb::list result;
    for (const JudgedRow &row : rows) {
      result.append(nb::make_tuple(row.token, row.logprob, row.top));
    }
    return result;
  }

  // In a forked child nothing may be locked: the thread that held the lock is not there to let go.
  bool ended() const { return forked() || ticket_.channel->ended(); }
  bool drained() const { return forked() || ticket_.channel->drained(); }

  // A failure's cause knows frames, and they may know the owner of this ticket.
  int traverse(visitproc visit, void *arg) const {
    if (!forked()) {
      Py_VISIT(static_cast<PyObject *>(ticket_.channel->own_cause()));
    }
    return 0;
  }
  void clear() {
    if (!forked()) {
      ticket_.channel->give_cause();
    }
  }

  void cancel() {
    if (forked()) {
      return;
    }
    const NativeSection section;
    if (const std::shared_ptr<EngineCloser> closer = closer_.lock()) {
      closer->engine().cancel(ticket_.id, Trouble::kCancelled, "the request was cancelled");
    }
  }

  int event_fd() const { return ticket_.channel->event_fd(); }

  // How it ended, as a dict; raises what the request failed with. Before the end: Closed never,
  // None.
  nb::object ending() const {
    check_fork();
    const std::optional<Ending> ending = ticket_.channel->ending();
    return ending.has_value() ? ending_dict(*ending) : nb::none();
  }
  void raise_trouble() const {
    const std::optional<Ending> ending = ticket_.channel->ending();
    if (ending.has_value() && ending->trouble != Trouble::kNone) {
      raise(ending->trouble, ending->error);
    }
  }

private:
  bool forked() const {
    const std::shared_ptr<EngineCloser> closer = closer_.lock();
    return closer != nullptr && closer->forked();
  }
  void check_fork() const {
    if (forked()) {
      raise_closed("this request belongs to the parent process");
    }
  }

  static nb::object ending_dict(const Ending &ending) {
    nb::dict dict = metrics_dict(ending.metrics);
    dict["reason"] = static_cast<int>(ending.reason);
    dict["trouble"] = static_cast<int>(ending.trouble);
    dict["message"] = ending.error.message;
    dict["stop_bytes"] = ending.stop_bytes;
    dict["queued_s"] = static_cast<double>(ending.queued_ns) * 1e-9;
    dict["first_token_s"] = static_cast<double>(ending.first_token_ns) * 1e-9;
    dict["total_s"] = static_cast<double>(ending.total_ns) * 1e-9;
    dict["target_busy_s"] = static_cast<double>(ending.target_busy_ns) * 1e-9;
    dict["drafter_busy_s"] = static_cast<double>(ending.drafter_busy_ns) * 1e-9;
    dict["servers_s"] = static_cast<double>(ending.slot_ns) * 1e-9;
    dict["target_forward_s"] = ending.target_forward_ns * 1e-9;
    dict["drafter_forward_s"] = ending.drafter_forward_ns * 1e-9;
    dict["lookahead"] = ending.lookahead;
    dict["draft_pauses"] = ending.draft_pauses;
    dict["undrafted"] = ending.undrafted;
    if (ending.record != nullptr) {
      add_record(dict, *ending.record);
    }
    return dict;
  }

  std::weak_ptr<EngineCloser> closer_;
  Ticket ticket_;
  Nanos deadline_;
};

PyTicket submit(const PyEngine &self,
                nb::ndarray<const Token, nb::ndim<1>, nb::c_contig, nb::device::cpu> prompt,
                const SamplingParams &sampling, const Policy &policy, std::int64_t max_new_tokens,
                std::int64_t target_context, std::int64_t drafter_context, std::int64_t vocab_size,
                const std::vector<nb::bytes> &stop_strings, const TokenBytesTable *token_bytes,
                nb::object hook, bool auto_lookahead, double timeout_s, DraftMethod method,
                bool break_even, bool record) {
  const std::shared_ptr<EngineCloser> closer = self.usable();
  RequestSpec spec;
  spec.prompt.assign(prompt.data(), prompt.data() + prompt.size());
  spec.sampling = sampling;
  spec.session.policy = policy;
  spec.session.max_new_tokens = max_new_tokens;
  spec.session.target_context = target_context;
  spec.session.drafter_context = drafter_context;
  spec.session.vocab_size = vocab_size;
  spec.session.stop_ids = sampling.stop_ids;
  if (!stop_strings.empty()) {
    if (token_bytes == nullptr) {
      throw std::invalid_argument(
          "stop: stop strings need a tokenizer whose tokens' bytes are known");
    }
    std::vector<std::string> strings;
    for (const nb::bytes &text : stop_strings) {
      strings.emplace_back(text.c_str(), text.size());
    }
    spec.session.stop_strings.emplace(token_bytes->bytes, std::move(strings));
  }
  if (!hook.is_none()) {
    spec.hook = share(hook);
  }
  spec.auto_lookahead = auto_lookahead;
  spec.method = method;
  spec.break_even = break_even;
  spec.record = record;
  spec.timeout_ns = timeout_s > 0 ? static_cast<Nanos>(timeout_s * 1e9) : 0;
  const Nanos deadline = spec.timeout_ns > 0 ? now_ns() + spec.timeout_ns : 0;
  std::optional<EngineUnusable> unusable;
  Ticket ticket;
  {
    const NativeSection section;
    try {
      ticket = closer->engine().submit(std::move(spec));
    } catch (const EngineUnusable &error) {
      unusable = error;
    }
  }
  if (unusable.has_value()) {
    raise(unusable->trouble(), unusable->error());
  }
  return {closer, std::move(ticket), deadline};
}

int engine_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyEngine>(self)->traverse(visit, arg) : 0;
}

int engine_clear(PyObject *self) {
  nb::inst_ptr<PyEngine>(self)->clear();
  return 0;
}

int ticket_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyTicket>(self)->traverse(visit, arg) : 0;
}

int ticket_clear(PyObject *self) {
  nb::inst_ptr<PyTicket>(self)->clear();
  return 0;
}

PyType_Slot engine_slots[] = {{Py_tp_traverse, reinterpret_cast<void *>(engine_traverse)},
                              {Py_tp_clear, reinterpret_cast<void *>(engine_clear)},
                              {0, nullptr}};
PyType_Slot ticket_slots[] = {{Py_tp_traverse, reinterpret_cast<void *>(ticket_traverse)},
                              {Py_tp_clear, reinterpret_cast<void *>(ticket_clear)},
                              {0, nullptr}};

} // namespace

void bind_engine(nb::module_ &module) {
  nb::enum_<DraftMethod>(module, "DraftMethod")
      .value("TLI", DraftMethod::kTli)
      .value("SLEM", DraftMethod::kSlem);
  nb::class_<PyTicket>(module, "Ticket", nb::type_slots(ticket_slots), "One submitted request.")
      .def("take", &PyTicket::take, nb::arg("max_wait_s") = -1.0,
           "Waits for tokens: [(id, logprob, top), ...]; [] at the end, or after max_wait_s.")
      .def("cancel", &PyTicket::cancel)
      .def("ending", &PyTicket::ending)
      .def("raise_trouble", &PyTicket::raise_trouble)
      .def_prop_ro("event_fd", &PyTicket::event_fd)
      .def_prop_ro("ended", &PyTicket::ended)
      .def_prop_ro("drained", &PyTicket::drained, "Ended, and every token was taken.");
  nb::class_<PyEngine>(module, "Engine", nb::type_slots(engine_slots), nb::is_weak_referenceable(),
                       "The native engine: one worker per server.")
      .def(nb::init<const nb::list &, const nb::object &, int, std::int64_t, bool>(),
           nb::arg("targets"), nb::arg("drafter").none(), nb::arg("max_running") = 16,
           nb::arg("vocab_size") = std::numeric_limits<Token>::max(), nb::arg("one_worker") = false)
      .def("submit", &submit, nb::arg("prompt").noconvert(), nb::arg("sampling"), nb::arg("policy"),
           nb::arg("max_new_tokens"), nb::arg("target_context") = -1,
           nb::arg("drafter_context") = -1, nb::arg("vocab_size") = -1,
           nb::arg("stop_strings") = std::vector<nb::bytes>{},
           nb::arg("token_bytes").none() = nb::none(), nb::arg("hook").none() = nb::none(),
           nb::arg("auto_lookahead") = false, nb::arg("timeout_s") = 0.0,
           nb::arg("method") = DraftMethod::kTli, nb::arg("break_even") = false,
           nb::arg("record") = false)
      .def("close", &PyEngine::close)
      .def_prop_ro("unfinished",
                   [](const PyEngine &self) {
                     const std::shared_ptr<EngineCloser> closer = self.usable();
                     const NativeSection section;
                     return closer->engine().unfinished();
                   })
      .def_prop_ro("sp", [](const PyEngine &self) { return self.usable()->engine().sp(); });
}

} // namespace dsi::py
