#include "bindings/python_server.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>

#include "bindings/device_judge.h"
#include "runtime/worker.h"

namespace dsi::py {

namespace {

using TokenArray = nb::ndarray<nb::numpy, const Token, nb::ndim<1>>;
using LogitsArray = nb::ndarray<nb::numpy, const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RowArray = nb::ndarray<nb::numpy, float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Without a copy, for as long as Python keeps it.
nb::object token_array(TokenPrefix tokens) {
  auto *keep = new TokenPrefix(std::move(tokens)); // NOLINT(cppcoreguidelines-owning-memory)
  const nb::capsule owner(keep, [](void *kept) noexcept {
    delete static_cast<TokenPrefix *>(kept); // NOLINT(cppcoreguidelines-owning-memory)
  });
  return nb::cast(TokenArray(keep->data(), {keep->size()}, owner));
}

// What a Python function returned, for a message.
std::string described(nb::handle result) {
  const nb::object shape = nb::getattr(result, "shape", nb::none());
  const std::string type = nb::cast<std::string>(result.type().attr("__name__"));
  return shape.is_none() ? type : type + " of shape " + nb::cast<std::string>(nb::str(shape));
}

// As a C-contiguous float32 array of the right number of dimensions; false where it is none.
template <typename Array> bool as_float32(nb::handle result, Array &array) {
  try {
    return nb::try_cast(nb::module_::import_("numpy").attr("ascontiguousarray")(result, "float32"),
                        array, false);
  } catch (const nb::python_error &) {
    return false;
  }
}

// Turns a Python exception into what the worker understands. A server that stops unasked has
// failed: its work would be offered to it again for ever. Needs the GIL.
Outcome failed_or_stopped(const Job &job, const nb::python_error &error) {
  if (job.stopped.load(std::memory_order_relaxed) &&
      error.matches(nb::module_::import_("dsi_native.errors").attr("Stopped"))) {
    Outcome outcome;
    outcome.kind = Outcome::Kind::kStopped;
    return outcome;
  }
  throw CausedError(job_error(error));
}

// The user's hook on an array that Python owns, so that keeping it does no harm.
class PythonHook final : public RowHook {
public:
  explicit PythonHook(PyObject *hook) : hook_(hook) {}

  void apply(std::span<const Token> prefix, std::span<float> row) override {
    const nb::gil_scoped_acquire gil;
    try {
      nb::object array = nb::module_::import_("numpy").attr("empty")(row.size(), "float32");
      auto view = nb::cast<RowArray>(array);
      std::copy(row.begin(), row.end(), view.data());
      nb::object result = nb::handle(hook_)(token_array(prefix), array);
      RowArray edited = view;
      if (!result.is_none() && (!as_float32(result, edited) || edited.size() != row.size())) {
        throw std::invalid_argument("logits_processor: returned " + described(result) +
                                    ", expected numbers of shape (" + std::to_string(row.size()) +
                                    ",)");
      }
      std::copy(edited.data(), edited.data() + edited.size(), row.begin());
    } catch (nb::python_error &error) {
      throw CausedError(job_error(error));
    }
  }

private:
  PyObject *hook_;
};

} // namespace

PythonServer::PythonServer(nb::handle object, std::int64_t vocab_limit,
                           std::unique_ptr<Translator> translator)
    : object_(share(object)), vocab_limit_(vocab_limit),
      proposes_ids_(nb::hasattr(object, "draft")), prefills_(nb::hasattr(object, "prefill")),
      judges_(nb::cast<bool>(nb::getattr(object, "judges_on_device", nb::bool_(false)))),
      translator_(std::move(translator)) {}

void PythonServer::started() {
  stay_attached();
  const nb::gil_scoped_acquire gil;
  const nb::handle object(object_.get());
  if (nb::hasattr(object, "started")) {
    try {
      object.attr("started")();
    } catch (nb::python_error &error) {
      throw CausedError(job_error(error));
    }
  }
}

nb::object PythonServer::forward(Job &job, const nb::object &tokens, Position first) {
  return nb::handle(object_.get())
      .attr("forward")(job.request->id, tokens, first, nb::cast(job.shared_from_this()));
}

nb::object PythonServer::answer(Job &job) {
  const bool drafts = job.kind == JobKind::kDraft;
  const nb::object tokens = token_array(job.tokens);
  if (!judges_)
    return forward(job, tokens, drafts ? job.length : job.first);
  const nb::handle object(object_.get());
  const nb::object self = nb::cast(job.shared_from_this());
  return drafts ? object.attr("sample")(job.request->id, tokens, vocab_limit_, self)
                : object.attr("verify")(job.request->id, tokens, job.first, self);
}

Logits PythonServer::as_rows(const nb::object &result, std::int64_t rows) {
  LogitsArray array;
  const bool as_it_is = nb::try_cast(result, array, false);
  const bool fits = as_it_is || as_float32(result, array);
  if (!fits || static_cast<std::int64_t>(array.shape(0)) != rows || array.shape(1) == 0) {
    throw std::invalid_argument("forward: returned " + described(result) +
                                ", expected logits of shape (" + std::to_string(rows) +
                                ", vocab_size)");
  }
  logits_ = share(as_it_is ? result : nb::cast(array));
  return {array.data(), rows, static_cast<std::int64_t>(array.shape(1))};
}

Outcome PythonServer::draft_ids(Job &job) {
  const nb::object ids =
      nb::handle(object_.get())
          .attr("draft")(job.request->id, token_array(job.tokens), job.max_drafts);
  Outcome outcome;
  for (const nb::handle id : ids) {
    if (static_cast<int>(outcome.drafts.size()) == job.max_drafts) {
      break;
    }
    const auto wide = nb::cast<std::int64_t>(nb::int_(id));
    const bool fits =
        wide >= 0 && wide <= std::numeric_limits<Token>::max(); // the Session refuses -1
    outcome.drafts.push_back(Draft{fits ? static_cast<Token>(wide) : -1, nullptr});
  }
  return outcome;
}

// Outside the GIL but for the forwards and the encoders.
Outcome PythonServer::draft_translated(Job &job) {
  return translator_->draft(job, judge_, [&](const TokenPrefix &ids) {
    const nb::gil_scoped_acquire gil;
    std::optional<std::span<const float>> row;
    try {
      row = as_rows(forward(job, token_array(ids), static_cast<Position>(ids.size())), 1).row(0);
    } catch (nb::python_error &error) {
      failed_or_stopped(job, error); // throws where it failed
    }
    return row;
  });
}

Outcome PythonServer::run(Job &job) {
  if (job.kind == JobKind::kDraft && translator_ != nullptr) {
    return draft_translated(job);
  }
  Logits logits;
  {
    const nb::gil_scoped_acquire gil;
    try {
      if (job.kind == JobKind::kDraft && proposes_ids_) {
        return draft_ids(job);
      }
      if (job.kind == JobKind::kPrefill) {
        if (prefills_) {
          nb::handle(object_.get())
              .attr("prefill")(job.request->id, token_array(job.tokens),
                               nb::cast(job.shared_from_this()));
        }
        return {};
      }
      const nb::object given = answer(job);
      if (judges_ && nb::isinstance<nb::tuple>(given)) {
        return judged_on_device(job, given);
      }
      const Position first = job.kind == JobKind::kDraft ? job.length : job.first;
      logits = as_rows(given, job.length - first + 1);
    } catch (nb::python_error &error) {
      return failed_or_stopped(job, error);
    }
  }
  return judge(job, logits);
}

// An error in here is the request's own, its hook's for one; the server did its part.
Outcome PythonServer::judge(Job &job, const Logits &logits) {
  PythonHook hook(static_cast<PyObject *>(job.request->hook.get()));
  RowHook *used = job.request->hook != nullptr ? &hook : nullptr;
  try {
    if (job.kind == JobKind::kVerify) {
      fetch_laws(job);
      return judge_.verify(job, logits, used);
    }
    const auto row = logits.row(0);
    return judge_.draft(
        job, row.first(std::min(row.size(), static_cast<std::size_t>(vocab_limit_))), used);
  } catch (...) {
    Outcome outcome;
    outcome.kind = Outcome::Kind::kFailed;
    outcome.error = current_error();
    return outcome;
  }
}

void PythonServer::release(RequestId request) {
  if (translator_ != nullptr) {
    translator_->release(request);
  }
  const nb::gil_scoped_acquire gil;
  drop_device_rows();
  const nb::handle object(object_.get());
  if (nb::hasattr(object, "release")) {
    try {
      object.attr("release")(request);
    } catch (nb::python_error &error) {
      throw CausedError(job_error(error));
    }
  }
}

void PythonServer::clear() {
  drop_device_rows();
  translator_.reset();
  logits_.reset();
  object_.reset();
}

void bind_job(nb::module_ &module) {
  auto job = nb::class_<Job>(module, "Job", "One task of a server, as a Python server sees it.");
  job.def_prop_ro(
      "stopped", [](const Job &self) { return self.stopped.load(std::memory_order_relaxed); },
      "True once nobody will read the result: raise dsi_native.errors.Stopped soon.");
  bind_judging(job);
}

} // namespace dsi::py
