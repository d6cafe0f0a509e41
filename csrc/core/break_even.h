// Whether drafting pays for itself, by the time a request's tokens take with it and without.
#pragma once

#include <algorithm>

#include "core/types.h"

namespace dsi {

// Of one request. Drafting can only lose where target and drafter share a device or take turns;
// there it is stopped where plain decoding is faster, and tried again later, after ever longer
// pauses. Never changes the text.
class BreakEven {
public:
  // certain: drafting that takes less than this share of an estimated plain token pays without a
  // measurement of plain decoding.
  explicit BreakEven(double certain) : certain_(certain) {}

  // `tokens` more were committed at `now`. plain_ns: an upper estimate of a plain token's time, 0
  // for none. Returns whether to draft from now on.
  bool committed(std::int64_t tokens, Nanos now, double plain_ns) {
    undrafted_ += drafting_ ? 0 : tokens;
    if (skip_ > 0) { // the first ones still come from the phase before, or with the prompt
      skip_ -= tokens;
      begin_ = now;
      return drafting_;
    }
    tokens_ += tokens;
    if (tokens_ >= goal_)
      decide(static_cast<double>(now - begin_) / static_cast<double>(tokens_), now, plain_ns);
    return drafting_;
  }

  bool drafting() const { return drafting_; }
  std::int64_t pauses() const { return pauses_; }       // times that drafting did not pay
  std::int64_t undrafted() const { return undrafted_; } // tokens committed while it was stopped

private:
  static constexpr std::int64_t kTrial = 16;
  static constexpr std::int64_t kProbe = 6;
  static constexpr std::int64_t kRecheck = 64;
  static constexpr std::int64_t kLongest = 512;
  static constexpr std::int64_t kSettling = 2;

  void decide(double rate, Nanos now, double plain_ns) {
    if (!drafting_) {
      plain_ns_ = rate;
      if (!probing_) // the pause is over
        return start(true, kTrial, now);
      probing_ = false;
      return compare(now);
    }
    drafted_ns_ = rate;
    if (plain_ns > 0 && rate < certain_ * plain_ns) {
      pause_ = kRecheck;
      return start(true, kRecheck, now);
    }
    if (plain_ns_ > 0)
      return compare(now);
    probing_ = true;
    start(false, kProbe, now);
  }

  void compare(Nanos now) {
    if (drafted_ns_ <= plain_ns_) {
      pause_ = kRecheck;
      return start(true, kRecheck, now);
    }
    ++pauses_;
    start(false, pause_, now);
    pause_ = std::min(2 * pause_, kLongest);
  }

  void start(bool drafting, std::int64_t goal, Nanos now) {
    skip_ = drafting == drafting_ ? 0 : kSettling;
    drafting_ = drafting;
    goal_ = goal;
    tokens_ = 0;
    begin_ = now;
  }

  double certain_;
  bool drafting_ = true;
  bool probing_ = false;
  std::int64_t skip_ = 1;
  std::int64_t goal_ = kTrial;
  std::int64_t tokens_ = 0;
  std::int64_t pause_ = kRecheck;
  Nanos begin_ = 0;
  double drafted_ns_ = 0; // per token
  double plain_ns_ = 0;   // 0: not measured yet
  std::int64_t pauses_ = 0;
  std::int64_t undrafted_ = 0;
};

} // namespace dsi
