// The pure core for Python: sampling parameters, policies, plan, and the Session itself for drivers
// written in Python (tests, and the benchmark that compares them with the native one).
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <span>

#include "bindings/bind_engine.h"
#include "core/plan.h"
#include "core/rng.h"
#include "core/sampling.h"
#include "core/session.h"

namespace dsi::py {

namespace nb = nanobind;

namespace {

std::vector<Token> ids_of(const std::vector<JudgedRow> &rows) {
  std::vector<Token> ids;
  for (const JudgedRow &row : rows) {
    ids.push_back(row.token);
  }
  return ids;
}

// -log E: what draw_coupled() adds to the scaled logits of ids 0..n-1.
std::vector<double> coupled_noise(std::uint64_t seed, Position position, Token n) {
  std::vector<double> noise;
  for (Token id = 0; id < n; ++id) {
    const std::uint32_t bits = token_bits(seed, position, kCoupledNoise, id);
    noise.push_back(-std::log(static_cast<double>(exponential(bits))));
  }
  return noise;
}

} // namespace

nb::dict metrics_dict(const Metrics &metrics) {
  nb::dict dict;
  dict["emitted"] = metrics.emitted;
  dict["accepted"] = metrics.accepted;
  dict["rejected"] = metrics.rejected;
  dict["bonus"] = metrics.bonus;
  dict["drafted"] = metrics.drafted;
  dict["drafts_unjudged"] = metrics.drafts_unjudged;
  dict["verifies"] = metrics.verifies;
  dict["wasted_verifies"] = metrics.wasted_verifies;
  dict["stopped_verifies"] = metrics.stopped_verifies;
  dict["failed_verifies"] = metrics.failed_verifies;
  dict["draft_jobs"] = metrics.draft_jobs;
  dict["judged_at"] = metrics.judged_at;
  dict["accepted_at"] = metrics.accepted_at;
  dict["drafter_error"] = metrics.drafter_error;
  return dict;
}

void bind_sampling(nb::module_ &module) {
  nb::enum_<Mode>(module, "Mode")
      .value("NON_SI", Mode::kNonSI)
      .value("SI", Mode::kSI)
      .value("DSI", Mode::kDSI);
  nb::enum_<Verification>(module, "Verification")
      .value("COUPLED", Verification::kCoupled)
      .value("REJECTION", Verification::kRejection);
  nb::class_<Policy>(module, "Policy")
      .def(nb::init<>())
      .def_rw("mode", &Policy::mode)
      .def_rw("lookahead", &Policy::lookahead)
      .def_rw("run_ahead", &Policy::run_ahead)
      .def_rw("max_window", &Policy::max_window)
      .def_rw("prefill", &Policy::prefill);
  nb::class_<SamplingParams>(module, "Sampling")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("seed", &SamplingParams::seed)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("logit_bias", &SamplingParams::logit_bias)
      .def_rw("min_new_tokens", &SamplingParams::min_new_tokens)
      .def_rw("stop_ids", &SamplingParams::stop_ids)
      .def_rw("logprobs", &SamplingParams::logprobs)
      .def_rw("verification", &SamplingParams::verification);
  module.def("coupled_noise", &coupled_noise, nb::arg("seed"), nb::arg("position"), nb::arg("n"),
             "What a coupled draw adds to the scaled logits of ids 0..n-1, for audits.");
}

void bind_session(nb::module_ &module) {
  nb::class_<Session>(module, "Session",
                      "The decode loop of one request as a pure state machine; see session.h.")
      .def(
          "__init__",
          [](Session *self, const std::vector<Token> &prompt, std::int64_t max_new_tokens,
             const Policy &policy, const std::vector<Token> &stop_ids) {
            SessionConfig config;
            config.policy = policy;
            config.max_new_tokens = max_new_tokens;
            config.stop_ids = stop_ids;
            new (self) Session(std::move(config), prompt);
          },
          nb::arg("prompt"), nb::arg("max_new_tokens"), nb::arg("policy"),
          nb::arg("stop_ids") = std::vector<Token>{})
      .def("verify_urgency",
           [](const Session &self) { return static_cast<int>(self.verify_urgency()); })
      .def("take_verify",
           [](Session &self) {
             const VerifyTask task = self.take_verify();
             return nb::make_tuple(task.job, task.first, task.window);
           })
      .def("wants_draft", &Session::wants_draft)
      .def("take_draft",
           [](Session &self) {
             const DraftTask task = self.take_draft();
             return nb::make_tuple(task.job, task.from, task.max_drafts);
           })
      .def("drafted",
           [](Session &self, JobId job, const std::vector<Token> &ids) {
             std::vector<Draft> drafts;
             for (const Token id : ids) {
               drafts.push_back(Draft{id, nullptr});
             }
             self.drafted(job, drafts);
           })
      .def("draft_failed",
           [](Session &self, JobId job, const std::string &message) {
             self.draft_failed(job, {message, nullptr});
           })
      .def("judged",
           [](Session &self, JobId job, const std::vector<Token> &ids) {
             std::vector<JudgedRow> rows;
             for (const Token id : ids) {
               rows.push_back(JudgedRow{id, 0.0F, {}});
             }
             self.judged(job, std::move(rows));
           })
      .def("verify_failed",
           [](Session &self, JobId job, const std::string &message) {
             self.verify_failed(job, {message, nullptr});
           })
      .def("stopped", &Session::stopped)
      .def("cancel", [](Session &self) { self.cancel(FinishReason::kCancelled, {}); })
      .def("take_emitted", [](Session &self) { return ids_of(self.take_emitted()); })
      .def("take_stale", &Session::take_stale)
      .def("path",
           [](const Session &self) {
             return std::vector<Token>(self.path().begin(), self.path().end());
           })
      .def_prop_ro("committed", &Session::committed)
      .def_prop_ro("epoch", &Session::epoch)
      .def_prop_ro("finished", &Session::finished)
      .def_prop_ro("reason", [](const Session &self) { return static_cast<int>(self.reason()); })
      .def_prop_ro("metrics", [](const Session &self) { return metrics_dict(self.metrics()); });
}

} // namespace dsi::py
