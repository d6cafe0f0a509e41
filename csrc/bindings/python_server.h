// A target or drafter server written in Python. Slow next to a native one, and honest about the
// GIL: it is held while the Python method runs, and given up while its logits are judged.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/interpreter.h"
#include "runtime/judge.h"
#include "runtime/server.h"
#include "runtime/translator.h"

namespace dsi::py {

// Methods called: started(), forward(request, tokens, first, job), draft(request, tokens,
// max_drafts), prefill(request, tokens, job), release(request). Where the object has a true
// attribute judges_on_device, verify(request, tokens, first, job) and sample(request, tokens,
// vocab_limit, job) in place of forward: they return rows as forward does, or a tuple, see
// bindings/device_judge.h.
class PythonServer final : public Server {
public:
  // Needs the GIL. Rows wider than `vocab_limit` are cut to it: ids that the target does not have.
  // With a translator it is a drafter with another vocabulary.
  PythonServer(nb::handle object, std::int64_t vocab_limit,
               std::unique_ptr<Translator> translator = nullptr);
  void started() override;
  Outcome run(Job &job) override;
  void release(RequestId request) override;
  PyObject *object() const { return object_.get(); } // borrowed
  void clear(); // drops the object; the worker has ended. Needs the GIL.

private:
  Outcome draft_ids(Job &job);
  Outcome draft_translated(Job &job);
  Outcome judge(Job &job, const Logits &logits);
  // With the GIL. What the object says to a job: rows, or what bindings/device_judge.h reads.
  nb::object answer(Job &job);
  nb::object forward(Job &job, const nb::object &tokens, Position first);
  Logits as_rows(const nb::object &result, std::int64_t rows); // live until the next call

  SharedObject object_;
  SharedObject logits_;
  std::int64_t vocab_limit_;
  bool proposes_ids_ = false;
  bool prefills_ = false;
  bool judges_ = false; // on its device
  Judge judge_;
  std::unique_ptr<Translator> translator_;
};

void bind_job(nb::module_ &module);

} // namespace dsi::py
