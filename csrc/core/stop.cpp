#include "core/stop.h"

#include <algorithm>
#include <utility>

namespace dsi {

StopMatcher::StopMatcher(std::shared_ptr<const TokenBytes> bytes, std::vector<std::string> strings)
    : bytes_(std::move(bytes)), strings_(std::move(strings)) {
  std::erase_if(strings_, [](const std::string &string) { return string.empty(); });
  for (const std::string &string : strings_)
    keep_ = std::max(keep_, string.size() - 1);
}

std::optional<std::int64_t> StopMatcher::push(Token token) {
  const auto &offsets = bytes_->offsets;
  if (match_ || token < 0 || static_cast<std::size_t>(token) + 1 >= offsets.size())
    return match_;
  const auto id = static_cast<std::size_t>(token);
  const std::int64_t added = offsets[id + 1] - offsets[id];
  tail_.append(bytes_->blob, static_cast<std::size_t>(offsets[id]),
               static_cast<std::size_t>(added));
  total_bytes_ += added;
  // What the tail held before this token was searched then, so whatever is found ends in the token.
  std::size_t start = std::string::npos;
  for (const std::string &string : strings_)
    start = std::min(start, tail_.find(string));
  if (start != std::string::npos)
    match_ = total_bytes_ - static_cast<std::int64_t>(tail_.size() - start);
  if (tail_.size() > keep_)
    tail_.erase(0, tail_.size() - keep_);
  return match_;
}

} // namespace dsi
