#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/data/csv.h>

namespace tandem::inline v0::data {

/// What becomes of a text that is none of the categories.
enum class Unseen : std::uint8_t {
  error,   // IoError at the first one
  ignore,  // index -1, a one-hot row of zeros
  other,   // a category of its own, behind the named ones
};

/// What Categories makes of texts.
struct CategoriesOptions {
  Unseen unseen = Unseen::error;       // what encode() does with a text that was not there when the order was made
  std::int64_t max_categories = 1000;  // more of them are an error: a column of names is no category
};

/// The categories of text columns, in a fixed order: the same texts get the same indices in every table. Fit on the
/// training part, or state them.
class TANDEM_API Categories {
 public:
  /// In the order of their indices: {"small", "medium", "large"}. Throws ConfigError for no name, or one used twice:
  /// "(other)" is one of them under Unseen::other.
  explicit Categories(std::vector<std::string> names, Unseen unseen = Unseen::error);
  /// The different texts of a column, sorted by bytes; under Missing::keep_nan, "" stands for missing. With `rows`,
  /// only those are looked at. Throws ConfigError for a numeric column (CsvOptions::text_columns makes it one of texts)
  /// or a row that is not there, and IoError for more than max_categories: as a rule a column of names or free text, or
  /// of numbers with a typing error (the message says where the first text is).
  static Categories of(const CsvTable& table, std::string_view column, const CategoriesOptions& options = {});
  static Categories of(const CsvTable& table, std::string_view column, std::span<const std::int64_t> rows,
                       const CategoriesOptions& options = {});

  /// By index; with Unseen::other, "(other)" comes last.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// How many there are.
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(names_.size()); }

  /// A text column as indices into names(). Throws ConfigError for a numeric column and, under Unseen::error, IoError
  /// with file and line of the first text that is none of the categories.
  OneHot encode(const CsvTable& table, std::string_view column) const;

 private:
  std::vector<std::string> names_;
  std::int64_t num_named_;
  Unseen unseen_;
};

}  // namespace tandem::inline v0::data
