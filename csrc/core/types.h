// The vocabulary of the core: what a token, a position and a job are. No behaviour lives here.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dsi {

using Token = std::int32_t;      // an id of the target's vocabulary
using Position = std::int64_t;   // absolute, the prompt's first token is 0
using JobId = std::uint64_t;     // unique within one Session, never 0
using RequestId = std::uint64_t; // unique within one Engine, never 0
using Epoch = std::uint64_t;     // counts how often drafts of one Session were thrown away
using Nanos = std::int64_t;      // nanoseconds of a steady (or virtual) clock

enum class Mode : std::uint8_t { kNonSI, kSI, kDSI };
enum class Verification : std::uint8_t { kCoupled, kRejection };

// Why a request ended. kLength: max_new_tokens, or the target's context is full.
enum class FinishReason : std::uint8_t {
  kNone,
  kLength,
  kStopToken,
  kStopString,
  kCancelled,
  kError
};

// The law one draft was drawn from, needed by rejection verification only. A null
// shared_ptr<const DraftLaw> stands for a point mass on the draft itself (n-gram, argmax drafter).
struct DraftLaw {
  // Opaque: the row where its drafter computed it, with its edits, known to the bindings. Null
  // where it is on the host, in `logits`, which is empty else.
  std::shared_ptr<void> device_row;
  std::vector<float> logits; // [V], after edits
  float temperature = 1.0F;
  float cut =
      -std::numeric_limits<float>::infinity(); // of logit / temperature; what is below is out
  double lse = 0.0; // log of the sum of exp(logit / temperature) over what is left
  // Where the logits are in the drafter's own ids: [target's V], the drafter's id of each of the
  // target's, -1 for none. Null: the ids are the target's.
  std::shared_ptr<const std::vector<Token>> t2d;
};

struct Draft {
  Token id = -1;
  std::shared_ptr<const DraftLaw> law;
};

// What the target says at one judged position. `token` is final for that position provided every
// position before it turns out as the row assumed: the draft itself where it was accepted, else the
// correction or the bonus.
struct JudgedRow {
  Token token = -1;
  float logprob = 0.0F; // of `token`, processed law; 0 where not asked for
  std::vector<std::pair<Token, float>>
      top; // the most likely ids with their logprob, where asked for
  // Rejection: drawn when there was no draft to judge. A draft that has come since was not judged
  // by it.
  bool bonus = false;
};

// A failure of one job. `cause` is opaque here; the bindings keep the Python exception in it.
struct JobError {
  std::string message;
  std::shared_ptr<void> cause;
};

} // namespace dsi
