// Tokens that are added and cut at the end, while others keep beginnings of them without a copy.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/types.h"

namespace dsi {

// A beginning of a TokenSequence as it was, never to change. May be copied, kept and dropped on any
// thread.
class TokenPrefix {
public:
  TokenPrefix() = default;
  TokenPrefix(std::span<const Token> tokens)
      : buffer_(std::make_shared<Buffer>(tokens.size())), size_(tokens.size()) {
    std::copy(tokens.begin(), tokens.end(), buffer_->tokens.get());
  }
  TokenPrefix(const std::vector<Token> &tokens) : TokenPrefix(std::span<const Token>(tokens)) {}
  TokenPrefix(std::initializer_list<Token> tokens)
      : TokenPrefix(std::span<const Token>(tokens.begin(), tokens.size())) {}

  const Token *data() const { return buffer_ == nullptr ? nullptr : buffer_->tokens.get(); }
  std::size_t size() const { return size_; }
  const Token &operator[](std::size_t index) const { return data()[index]; }
  operator std::span<const Token>() const { return {data(), size_}; }

private:
  friend class TokenSequence;
  struct Buffer {
    explicit Buffer(std::size_t room) : tokens(new Token[room]), capacity(room) {}
    std::unique_ptr<Token[]> tokens;
    std::size_t capacity;
  };

  TokenPrefix(std::shared_ptr<Buffer> buffer, std::size_t size)
      : buffer_(std::move(buffer)), size_(size) {}

  std::shared_ptr<Buffer> buffer_;
  std::size_t size_ = 0;
};

// Not thread-safe itself. A place that a living prefix may see is never written again: the tokens
// before it move to a buffer of their own then. All else costs O(1), amortised.
class TokenSequence {
public:
  explicit TokenSequence(std::span<const Token> tokens) { append(tokens); }
  TokenSequence(const TokenSequence &) = delete;
  TokenSequence &operator=(const TokenSequence &) = delete;
  TokenSequence(TokenSequence &&) = default;
  TokenSequence &operator=(TokenSequence &&) = default;
  ~TokenSequence() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Token operator[](std::size_t index) const { return buffer_->tokens[index]; }
  operator std::span<const Token>() const {
    return {buffer_ == nullptr ? nullptr : buffer_->tokens.get(), size_};
  }

  void push_back(Token token) {
    make_room(1);
    buffer_->tokens[size_++] = token;
  }
  void append(std::span<const Token> tokens) {
    make_room(tokens.size());
    std::copy(tokens.begin(), tokens.end(), buffer_->tokens.get() + size_);
    size_ += tokens.size();
  }
  void cut(std::size_t size) { size_ = std::min(size, size_); }

  // The first `length` tokens, at most size().
  TokenPrefix prefix(std::size_t length) {
    seen_ = std::max(seen_, length);
    return {buffer_, length};
  }

private:
  // Whether no prefix of this buffer is left.
  bool alone() const {
    if (buffer_.use_count() != 1)
      return false;
    // The count says so without any order. One that is given back is ordered behind the others, and
    // so behind all that was read before they were given back on other threads.
    std::shared_ptr<TokenPrefix::Buffer>(buffer_).reset();
    return true;
  }
  void make_room(std::size_t more) {
    const std::size_t wanted = size_ + more;
    const bool fits = buffer_ != nullptr && wanted <= buffer_->capacity;
    if (fits && size_ >= seen_)
      return;
    if (fits && alone()) {
      seen_ = 0;
      return;
    }
    auto fresh = std::make_shared<TokenPrefix::Buffer>(std::max<std::size_t>(16, 2 * wanted));
    if (size_ > 0)
      std::copy_n(buffer_->tokens.get(), size_, fresh->tokens.get());
    buffer_ = std::move(fresh);
    seen_ = 0;
  }

  std::shared_ptr<TokenPrefix::Buffer> buffer_;
  std::size_t size_ = 0;
  std::size_t seen_ = 0; // of this buffer, by prefixes that may be alive
};

} // namespace dsi
