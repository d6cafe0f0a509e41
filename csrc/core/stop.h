// Stop strings, matched on bytes across token borders.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace dsi {

// id -> the bytes this token adds to the output. Built once per tokenizer, shared by requests.
struct TokenBytes {
  std::string blob;                    // all tokens' bytes, one after another
  std::vector<std::int64_t> offsets;   // [V+1]; token id has blob[offsets[id], offsets[id+1])
};

// Watches the bytes of one request's output. Not thread-safe; the Session owns it.
class StopMatcher {
public:
  // `strings`: non-empty byte strings. `bytes` is shared and read-only.
  StopMatcher(std::shared_ptr<const TokenBytes> bytes, std::vector<std::string> strings);
  // Adds one token. Returns how many bytes of the output so far, counted from its start, come before
  // the earliest match, or nothing while no string has been completed. Ids outside the table add nothing.
  std::optional<std::int64_t> push(Token token);

private:
  std::shared_ptr<const TokenBytes> bytes_;
  std::vector<std::string> strings_;
  std::string tail_; // the last (longest string - 1) bytes
  std::int64_t total_bytes_ = 0;
};

} // namespace dsi
