// What a server is: one instance of a model on a worker of its own, running one job at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/sampling.h"
#include "core/token_sequence.h"
#include "core/types.h"

namespace dsi {

enum class JobKind : std::uint8_t { kVerify, kDraft, kPrefill };

// How a drafter with another vocabulary drafts for a request; see Translator.
enum class DraftMethod : std::uint8_t { kTli, kSlem };

// What every job of one request shares. Immutable.
struct RequestContext {
  RequestId id = 0;
  Position prompt_tokens = 0;
  SamplingParams sampling;
  std::shared_ptr<void> hook; // opaque: a logits processor, known to the server that calls it
  DraftMethod method = DraftMethod::kTli;
};

struct Job : std::enable_shared_from_this<Job> {
  JobKind kind = JobKind::kVerify;
  JobId id = 0;
  std::shared_ptr<const RequestContext> request;
  // Verify: the path up to the end of the window, rows first..tokens.size() are judged.
  // Draft: the path up to the draft's position; up to `max_drafts` drafts follow it.
  // Prefill: the prompt. Empty where the server says it needs no tokens; then `length` alone
  // counts.
  TokenPrefix tokens;
  Position length = 0; // of the path; equals tokens.size() where tokens are sent
  Position first = 0;
  Position committed = 0; // draft: of the path, never to change again
  int max_drafts = 0;
  std::vector<std::shared_ptr<const DraftLaw>> laws; // rejection: one per draft in the window
  // Rejection: the draft for position `length`, if there is one by now. Does not wait.
  std::function<std::optional<Draft>()> frontier;
  std::atomic<bool> stopped{false}; // set when the result will not be read
};

// Exactly one is produced per job.
struct Outcome {
  enum class Kind : std::uint8_t { kDone, kStopped, kFailed } kind = Kind::kDone;
  std::vector<JudgedRow> rows;
  std::vector<Draft> drafts;
  JobError error;
  bool blames_server = false; // with kFailed: the forward itself raised
  bool server_lost = false;   // and the server will never run a job again
};

// Every method but stop() is called on the server's own worker thread. run() may block and may
// throw; a throw is a failed job.
class Server {
public:
  virtual ~Server() = default;
  virtual void started() {} // first thing on the worker thread
  virtual Outcome run(Job &job) = 0;
  virtual void stop(Job &job) { (void)job; } // any thread: wake a run() that waits for job.stopped
  virtual void release(RequestId request) { (void)request; } // the request is over: drop its cache
  virtual bool needs_tokens() const { return true; }
};

} // namespace dsi
