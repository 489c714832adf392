#include <tandem/data/diagnostics.h>

#include <algorithm>
#include <exception>

#include <tandem/core/check.h>

namespace tandem::inline v0::data {

namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view head;
  std::string_view name;
};

constexpr Signature kSignatures[] = {
    {"\x1f\x8b"sv, "gzip data inside gzip data"},
    {"\x89PNG"sv, "a PNG picture"},
    {"\xff\xd8\xff"sv, "a JPEG picture"},
    {"GIF89a"sv, "a GIF picture"},
    {"%PDF"sv, "a PDF document"},
    {"PK\x03\x04"sv, "a zip archive or a spreadsheet"},
    {"BZh91AY&SY"sv, "bzip2 data"},
    {"\xfd"
     "7zXZ"sv,
     "xz data"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data"},
    {"\x93NUMPY"sv, "a NumPy file"},
    {"PAR1\x15"sv, "a Parquet file"},
    {"\x89HDF"sv, "an HDF5 file"},
    {"\xff\xfe"sv, "UTF-16 text"},
    {"\xfe\xff"sv, "UTF-16 text"},
    {"<!DOCTYPE"sv, "an HTML page (a download that failed?)"},
    {"<!doctype"sv, "an HTML page (a download that failed?)"},
    {"<html"sv, "an HTML page (a download that failed?)"},
    {"<?xml"sv, "an XML file"},
};

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

}  // namespace

std::string excerpt(std::string_view text, std::size_t limit) {
  std::size_t length = std::min(text.size(), limit);
  while (length < text.size() && length > 0 && continues_character(text[length])) {
    --length;
  }
  std::string result = "'";
  for (const char c : text.substr(0, length)) {
    if (is_control(c)) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + (length < text.size() ? "...'" : "'");
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMaxListed = 20;
  std::string result;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
    result += (i == 0 ? "" : ", ") + excerpt(names[i]);
  }
  return names.size() > kMaxListed ? fmt::format("{} and {} more", result, names.size() - kMaxListed) : result;
}

std::string_view recognise(std::string_view head) {
  for (const Signature& signature : kSignatures) {
    if (head.starts_with(signature.head)) {
      return signature.name;
    }
  }
  const bool idx = head.size() >= 4 && head[0] == 0 && head[1] == 0 && head[2] >= 0x08 && head[2] <= 0x0e;
  return idx ? "an IDX file" : "";
}

bool looks_like_text(std::string_view head) {
  const auto printable = [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; };
  return !head.empty() && std::all_of(head.begin(), head.end(), printable);
}

void check_sample(const char* what, std::int64_t index, std::int64_t size) {
  check<ConfigError>(size > 0, "{}: there is no sample {}: the data set is empty", what, index);
  check<ConfigError>(index >= 0 && index < size, "{}: there is no sample {}: expected 0 to {} [TDM-E503]", what, index,
                     size - 1);
}

void rethrow_while(std::string_view doing) {
  const std::string context = fmt::format("while {}", doing);
  try {
    throw;
  } catch (Error& error) {
    error.add_context(context);
    throw;
  } catch (const std::exception& foreign) {
    Error error(foreign.what());
    std::throw_with_nested(error.add_context(context));
  } catch (...) {
    Error error("an exception that is no std::exception");
    std::throw_with_nested(error.add_context(context));
  }
}

}  // namespace tandem::inline v0::data
