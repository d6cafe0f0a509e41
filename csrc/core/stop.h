// Stop strings, matched on bytes across token borders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary.h"

namespace dsi {

// Watches the bytes of one request's output. Not thread-safe; the Session owns it.
class StopMatcher {
public:
  // `strings`: non-empty byte strings (empty ones are dropped). `bytes` is shared and read-only.
  StopMatcher(std::shared_ptr<const TokenBytes> bytes, std::vector<std::string> strings);
  // Adds one token. Returns how many bytes of the output so far, counted from its start, come
  // before the earliest match, or nothing while no string has been completed. Of several strings
  // completed by one token the one that starts first counts. After a match every call returns that
  // match. Ids outside the table add nothing. Cost: (longest string + token) bytes per string.
  std::optional<std::int64_t> push(Token token);

private:
  std::shared_ptr<const TokenBytes> bytes_;
  std::vector<std::string> strings_;
  std::size_t keep_ = 0; // longest string - 1
  std::string tail_;     // the last keep_ bytes: no match can begin before them
  std::int64_t total_bytes_ = 0;
  std::optional<std::int64_t> match_;
};

} // namespace dsi
