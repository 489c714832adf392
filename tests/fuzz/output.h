#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/targets.h"

// Helpers for targets that read a command line.

namespace tandem::fuzz {

/// Captures the text written to stderr and std::cout during its lifetime.
class Output {
 public:
  Output() : old_err_(stderr), old_out_(std::cout.rdbuf(out_.rdbuf())) { stderr = ::open_memstream(&text_, &size_); }
  ~Output() {
    std::fclose(stderr);
    stderr = old_err_;
    std::cout.rdbuf(old_out_);
    std::free(text_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  std::string_view err() {
    std::fflush(stderr);
    return {text_, size_};
  }
  std::string out() const { return out_.str(); }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::ostringstream out_;
  std::FILE* old_err_;
  std::streambuf* old_out_;
};

/// The name of a program, followed by one argument per line of `input`.
inline std::vector<std::string> arguments_of(const char* name, Bytes input) {
  std::vector<std::string> arguments{name};
  arguments.emplace_back();
  for (const std::uint8_t byte : input) {
    if (byte == '\n') {
      arguments.emplace_back();
    } else if (byte != 0) {  // an argument cannot contain a zero byte
      arguments.back() += static_cast<char>(byte);
    }
  }
  return arguments;
}

}  // namespace tandem::fuzz
