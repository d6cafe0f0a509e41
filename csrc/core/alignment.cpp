#include "core/alignment.h"

#include <algorithm>

namespace dsi {

Alignment::Alignment(std::shared_ptr<const VocabularyPair> pair)
    : pair_(std::move(pair)), ids_(pair_->opening), ends_(ids_.size(), 0) {}

std::string_view Alignment::ahead() const {
  return std::string_view(text_).substr(
      path_ends_.empty() ? 0 : static_cast<std::size_t>(path_ends_.back()));
}

std::string_view Alignment::ahead_whole() const { return whole_characters(ahead()); }

std::string_view Alignment::lead(std::size_t most) const {
  const auto end = path_ends_.empty() ? 0 : path_ends_.back();
  std::int64_t begin = end;
  bool at_word = false;
  for (std::size_t at = path_.size(); at > 0; --at) {
    const std::int64_t start = at == 1 ? 0 : path_ends_[at - 2];
    if (pair_->is_control(path_[at - 1]) || end - start > static_cast<std::int64_t>(most))
      break;
    const bool word = start < end && text_[static_cast<std::size_t>(start)] == ' ';
    if (word || !at_word)
      begin = start;
    at_word = at_word || word;
  }
  return std::string_view(text_).substr(static_cast<std::size_t>(begin),
                                        static_cast<std::size_t>(end - begin));
}

void Alignment::push(Token drafter_id) {
  text_ += pair_->drafter.of(drafter_id);
  ids_.push_back(drafter_id);
  ends_.push_back(static_cast<std::int64_t>(text_.size()));
}

std::size_t Alignment::agreed(std::span<const Token> path) const {
  const std::size_t most = std::min(path_.size(), path.size());
  std::size_t length = std::min(frozen_, most);
  while (length < most && path_[length] == path[length])
    ++length;
  return length;
}

void Alignment::follow(std::span<const Token> path, Position frozen, bool keep_ahead,
                       const Encoder &encode) {
  const std::size_t known = agreed(path);
  const auto offset = known == 0 ? std::size_t{0} : static_cast<std::size_t>(path_ends_[known - 1]);
  path_.resize(known);
  path_ends_.resize(known);
  std::string fresh;
  std::size_t comparable = std::string::npos; // bytes of `fresh` before its first control token
  for (const Token id : path.subspan(known)) {
    if (pair_->is_control(id))
      comparable = std::min(comparable, fresh.size());
    fresh += pair_->target.of(id);
    path_.push_back(id);
    path_ends_.push_back(static_cast<std::int64_t>(offset + fresh.size()));
  }
  const std::string_view before = std::string_view(text_).substr(offset);
  const std::string_view plain = std::string_view(fresh).substr(0, comparable);
  const auto agreed_bytes = static_cast<std::size_t>(
      std::mismatch(plain.begin(), plain.end(), before.begin(), before.end()).first -
      plain.begin());
  const bool drafted_already = agreed_bytes == fresh.size() && comparable == std::string::npos;
  if (!drafted_already || (!keep_ahead && before.size() > fresh.size()))
    replace_text(offset, agreed_bytes, fresh, encode);
  frozen_ = std::min(static_cast<std::size_t>(std::max<Position>(frozen, 0)), path_.size());
}

void Alignment::replace_text(std::size_t offset, std::size_t agreed_bytes, const std::string &fresh,
                             const Encoder &encode) {
  drop_ids_behind(static_cast<std::int64_t>(offset + agreed_bytes));
  text_.resize(offset);
  text_ += fresh;
  const std::int64_t spelled = ends_.empty() ? 0 : ends_.back();
  const auto first = std::upper_bound(path_ends_.begin(), path_ends_.end(), spelled);
  try {
    spell(static_cast<std::size_t>(first - path_ends_.begin()), encode);
  } catch (...) {
    *this = Alignment(pair_);
    throw;
  }
}

void Alignment::drop_ids_behind(std::int64_t offset) {
  while (ids_.size() > pair_->opening.size() && ends_.back() > offset) {
    ids_.cut(ids_.size() - 1);
    ends_.pop_back();
  }
}

// From ends_.back() on, which lies inside path_[first] or at its start.
void Alignment::spell(std::size_t first, const Encoder &encode) {
  std::int64_t begin = ends_.empty() ? 0 : ends_.back();
  Token single = -1; // the run, where it is one whole token
  const auto start_of = [&](std::size_t at) { return at == 0 ? 0 : path_ends_[at - 1]; };
  for (std::size_t at = first; at < path_.size(); ++at) {
    const Token id = path_[at];
    const Token own = pair_->drafter_id(id);
    const bool starts = at == 0 && pair_->opens(id);
    // In the middle a start token separates something that this drafter cannot know: text.
    const bool has_role = pair_->is_control(id) && own >= 0 && !pair_->opens(id);
    if (starts || has_role) {
      spell_run(begin, start_of(at), single, encode);
      if (own >= 0 && (has_role || pair_->opening.empty())) {
        ids_.push_back(own);
        ends_.push_back(path_ends_[at]);
      }
      begin = path_ends_[at];
      single = -1;
    } else {
      single = start_of(at) == begin && path_ends_[at] > begin ? own : -1;
    }
  }
  spell_run(begin, static_cast<std::int64_t>(text_.size()), single, encode);
}

void Alignment::spell_run(std::int64_t begin, std::int64_t end, Token single,
                          const Encoder &encode) {
  if (begin >= end)
    return;
  if (single >= 0) {
    ids_.push_back(single);
    ends_.push_back(end);
    return;
  }
  const Spelling spelling = encode(std::string_view(text_).substr(
      static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  for (std::size_t i = 0; i < std::min(spelling.ids.size(), spelling.ends.size()); ++i) {
    ids_.push_back(spelling.ids[i]);
    const std::int64_t least = ends_.empty() ? begin : std::max(begin, ends_.back());
    ends_.push_back(std::clamp(begin + spelling.ends[i], least, end));
  }
}

std::string_view whole_characters(std::string_view text) {
  // The lead byte of the last character is at most three bytes before the end.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U)
      continue;
    const std::size_t length = byte >= 0xF0U && byte <= 0xF4U   ? 4
                               : byte >= 0xE0U && byte <= 0xEFU ? 3
                               : byte >= 0xC2U && byte <= 0xDFU ? 2
                                                                : 1;
    return length > back ? text.substr(0, text.size() - back) : text;
  }
  return text;
}

} // namespace dsi
