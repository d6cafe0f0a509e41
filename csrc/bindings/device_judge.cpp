#include "bindings/device_judge.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/interpreter.h"
#include "runtime/judge.h"
#include "runtime/worker.h"

namespace dsi::py {

namespace {

template <typename T> using Column = nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig>;

// Bits of dsi_native.kernels.Status.
constexpr std::int32_t kNaNSeen = 1;
constexpr std::int32_t kEmpty = 2;
constexpr std::int32_t kInfinitySeen = 16;

RowStatus row_status(std::int32_t bits) {
  if ((bits & kNaNSeen) != 0)
    return RowStatus::kNaN;
  if ((bits & kInfinitySeen) != 0)
    return RowStatus::kInfinite;
  return (bits & kEmpty) != 0 ? RowStatus::kNothingLeft : RowStatus::kOk;
}

// Rows that lost their last reference where the GIL could not be waited for, under the engine's
// lock for one: drop_device_rows() lets them go.
struct Abandoned {
  std::mutex mutex; // guards the rest; a leaf
  std::vector<PyObject *> rows;
};
Abandoned &abandoned() {
  static auto *all = new Abandoned; // NOLINT(cppcoreguidelines-owning-memory): outlives threads
  return *all;
}

std::shared_ptr<void> device_row(nb::handle row) {
  return {row.inc_ref().ptr(), [](void *owned) {
            const std::scoped_lock lock(abandoned().mutex);
            abandoned().rows.push_back(static_cast<PyObject *>(owned));
          }};
}

template <typename T> nb::object owned_array(std::vector<T> values) {
  auto *kept = new std::vector<T>(std::move(values)); // NOLINT(cppcoreguidelines-owning-memory)
  const nb::capsule owner(kept, [](void *data) noexcept {
    delete static_cast<std::vector<T> *>(data); // NOLINT(cppcoreguidelines-owning-memory)
  });
  return nb::cast(Column<T>(kept->data(), {kept->size()}, owner));
}

// (offsets, ids, operations, values) of the rows for positions first..length, as
// dsi_native.kernels.Edits.
nb::tuple edits_of(const Job &job, Position first) {
  if (first < 0 || first > job.length)
    throw std::invalid_argument("edits: no such row");
  const std::span<const Token> path(job.tokens);
  RowEdits edits(job.request->sampling, path.first(static_cast<std::size_t>(first)),
                 job.request->prompt_tokens);
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> operations;
  std::vector<float> values;
  for (Position position = first; position <= job.length; ++position) {
    edits.each([&](const Edit &edit) {
      ids.push_back(edit.id);
      operations.push_back(static_cast<std::int32_t>(edit.operation));
      values.push_back(edit.value);
    });
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
    if (position < job.length)
      edits.push(path[static_cast<std::size_t>(position)]);
  }
  return nb::make_tuple(owned_array(std::move(offsets)), owned_array(std::move(ids)),
                        owned_array(std::move(operations)), owned_array(std::move(values)));
}

// The logits of a law that lies on the host, in the target's ids.
std::vector<float> target_logits(const DraftLaw &law) {
  if (law.t2d == nullptr)
    return law.logits;
  std::vector<float> logits;
  logits.reserve(law.t2d->size());
  for (const Token own : *law.t2d)
    logits.push_back(own >= 0 && static_cast<std::size_t>(own) < law.logits.size()
                         ? law.logits[static_cast<std::size_t>(own)]
                         : -std::numeric_limits<float>::infinity());
  return logits;
}

// None for a point mass, else (row on the device or None, logits on the host or None, temperature,
// cut, lse).
nb::object law_of(const std::shared_ptr<const DraftLaw> &law) {
  if (law == nullptr)
    return nb::none();
  nb::object row = nb::none();
  nb::object logits = nb::none();
  if (law->device_row != nullptr)
    row = nb::borrow(static_cast<PyObject *>(law->device_row.get()));
  else
    logits = owned_array(target_logits(*law));
  return nb::make_tuple(row, logits, law->temperature, law->cut, law->lse);
}

nb::object frontier_of(const Job &job) {
  std::optional<Draft> draft;
  if (job.frontier) {
    const NativeSection section; // it takes the engine's lock
    draft = job.frontier();
  }
  return draft.has_value() ? nb::object(nb::make_tuple(draft->id, law_of(draft->law))) : nb::none();
}

// The law with its row on the host. Takes the GIL.
std::shared_ptr<const DraftLaw> fetched(const std::shared_ptr<const DraftLaw> &law) {
  if (law == nullptr || law->device_row == nullptr)
    return law;
  const nb::gil_scoped_acquire gil;
  try {
    const nb::object parts =
        nb::handle(static_cast<PyObject *>(law->device_row.get())).attr("to_host")();
    const auto logits = nb::cast<Column<float>>(parts[0]);
    const auto ids = nb::cast<Column<std::int32_t>>(parts[1]);
    const auto operations = nb::cast<Column<std::int32_t>>(parts[2]);
    const auto values = nb::cast<Column<float>>(parts[3]);
    auto copy = std::make_shared<DraftLaw>(*law);
    copy->device_row = nullptr;
    copy->logits.assign(logits.data(), logits.data() + logits.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Edit edit{ids(i), static_cast<EditOperation>(operations(i)), values(i)};
      if (edit.id >= 0 && static_cast<std::size_t>(edit.id) < copy->logits.size()) {
        float &logit = copy->logits[static_cast<std::size_t>(edit.id)];
        logit = edited(logit, edit);
      }
    }
    return copy;
  } catch (nb::python_error &error) {
    throw CausedError(job_error(error));
  }
}

Outcome drafted(const Job &job, nb::handle answer) {
  Outcome outcome;
  const RowStatus status = row_status(nb::cast<std::int32_t>(answer[1]));
  if (status != RowStatus::kOk) {
    outcome.kind = Outcome::Kind::kFailed;
    outcome.error.message = undrawable("drafter", job.length, status);
    return outcome;
  }
  Draft draft{nb::cast<Token>(answer[0]), nullptr};
  const nb::object row = answer[5];
  if (!row.is_none()) {
    auto law = std::make_shared<DraftLaw>();
    law->temperature = nb::cast<float>(answer[2]);
    law->cut = nb::cast<float>(answer[3]);
    law->lse = nb::cast<double>(answer[4]);
    law->device_row = device_row(row);
    draft.law = std::move(law);
  }
  outcome.drafts.push_back(std::move(draft));
  return outcome;
}

Outcome verified(const Job &job, nb::handle answer) {
  const auto tokens = nb::cast<Column<Token>>(answer[0]);
  const auto status = nb::cast<Column<std::int32_t>>(answer[2]);
  Column<float> logprobs;
  if (!nb::object(answer[1]).is_none())
    logprobs = nb::cast<Column<float>>(answer[1]);
  const bool judged_frontier = nb::cast<bool>(answer[3]);
  const auto most = static_cast<std::size_t>(job.length - job.first + 1);
  const std::size_t rows = tokens.size();
  if (rows == 0 || rows > most || status.size() != rows ||
      (logprobs.is_valid() && logprobs.size() != rows))
    throw std::invalid_argument("verify: returned " + std::to_string(rows) +
                                " tokens, expected 1 to " + std::to_string(most));
  Outcome outcome;
  for (std::size_t i = 0; i < rows; ++i) {
    const Position position = job.first + static_cast<Position>(i);
    const RowStatus row = row_status(status(i));
    if (row != RowStatus::kOk) { // the rows before are good
      if (i == 0) {
        outcome.kind = Outcome::Kind::kFailed;
        outcome.error.message = undrawable("target", position, row);
      }
      return outcome;
    }
    JudgedRow judged;
    judged.token = tokens(i);
    judged.logprob = logprobs.is_valid() ? logprobs(i) : 0.0F;
    judged.bonus = position == job.length && !judged_frontier &&
                   job.request->sampling.verification == Verification::kRejection;
    outcome.rows.push_back(std::move(judged));
  }
  return outcome;
}

} // namespace

void drop_device_rows() {
  std::vector<PyObject *> rows;
  {
    const std::scoped_lock lock(abandoned().mutex);
    rows.swap(abandoned().rows);
  }
  for (PyObject *row : rows)
    Py_DECREF(row);
}

Outcome judged_on_device(const Job &job, nb::handle answer) {
  drop_device_rows();
  try {
    return job.kind == JobKind::kDraft ? drafted(job, answer) : verified(job, answer);
  } catch (const nb::cast_error &) {
    throw std::invalid_argument(job.kind == JobKind::kDraft ? "sample: returned no draft"
                                                            : "verify: returned no verdict");
  }
}

void fetch_laws(Job &job) {
  for (std::shared_ptr<const DraftLaw> &law : job.laws)
    law = fetched(law);
  if (job.frontier) {
    job.frontier = [newest = std::move(job.frontier)] {
      std::optional<Draft> draft = newest();
      if (draft.has_value())
        draft->law = fetched(draft->law);
      return draft;
    };
  }
}

void bind_judging(nb::class_<Job> &job) {
  job.def_prop_ro(
         "sampling",
         [](const Job &self) -> const SamplingParams & { return self.request->sampling; },
         nb::rv_policy::reference_internal, "The request's parameters.")
      .def_prop_ro(
          "hooked", [](const Job &self) { return self.request->hook != nullptr; },
          "Whether the request has a logits processor, which needs the rows on the host.")
      .def("edits", &edits_of, nb::arg("first"),
           "Edits of the rows for positions first..n as (offsets, ids, operations, values).")
      .def_prop_ro(
          "laws",
          [](const Job &self) {
            nb::list laws;
            for (const std::shared_ptr<const DraftLaw> &law : self.laws)
              laws.append(law_of(law));
            return laws;
          },
          "Of each draft, rejection only: None for a point mass, or (row on a device, else None; "
          "logits on the host, else None; temperature; cut; lse).")
      .def("frontier", &frontier_of,
           "The draft for the position behind the window as (id, law), None where there is none "
           "by now.");
}

} // namespace dsi::py
