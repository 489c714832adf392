#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

// Internal: reads JSON text of a file in small pieces and hands out one part after another. A text takes only its own
// length of memory, which no general parser promises.

namespace tandem::inline v0::checkpoint {

class JsonScanner {
 public:
  /// Reads `bytes` from `offset` on, or throws.
  using Read = std::function<void(std::uint64_t offset, std::span<char> bytes)>;

  /// Scans the bytes [begin, end). `path` stands in errors. All functions skip white space first, and throw IoError
  /// with the byte offset for anything that is not what they are to take.
  JsonScanner(const std::string& path, const Read& read, std::uint64_t begin, std::uint64_t end);

  /// Takes this character.
  void expect(char wanted, std::string_view expectation);
  /// Takes the character if it is next.
  bool accept(char wanted);
  /// Takes a string: valid UTF-8 with JSON's escapes.
  std::string text(std::string_view expectation);
  /// Takes a whole number from 0 to 2^63 - 1.
  std::int64_t number();
  /// Calls element() for each element of an array.
  template <class Element>
  void array(std::string_view expectation, const Element& element) {
    list('[', ']', expectation, element);
  }
  /// Calls member(key) for each member of an object, whose value it must take.
  template <class Member>
  void object(std::string_view expectation, const Member& member) {
    list('{', '}', expectation, [&] {
      const std::string key = text("a name in quotes");
      expect(':', "':'");
      member(key);
    });
  }
  /// Throws unless nothing but white space is left.
  void expect_end();

  /// Throws IoError "safetensors '<path>', byte <offset>: <words>" for the part that was taken last.
  [[noreturn]] void fail_here(const std::string& words) const;

 private:
  template <class Take>
  void list(char open, char close, std::string_view expectation, const Take& take) {
    expect(open, expectation);
    if (accept(close)) {
      return;
    }
    do {
      take();
    } while (accept(','));
    expect(close, close == ']' ? "',' or ']'" : "',' or '}'");
  }

  int peek();  // the next character, or -1 at the end
  int next();
  void skip_space();
  void seek(std::uint64_t offset);
  [[noreturn]] void refuse(std::string_view expectation);
  /// Decodes the rest of a string behind its first quote, and calls put(byte) for each byte.
  template <class Put>
  void decode(const Put& put);
  unsigned hex_digits();

  const std::string& path_;
  const Read& read_;
  std::uint64_t end_;
  std::uint64_t at_;            // of the next character
  std::uint64_t start_;         // of the part that was taken last
  std::uint64_t buffered_ = 0;  // offset of the buffer's first character
  std::size_t filled_ = 0;
  std::array<char, 16384> buffer_;
};

}  // namespace tandem::inline v0::checkpoint
