#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/data/csv.h>

namespace tandem::inline v0::data {

/// The treatment of a text that is none of the categories.
enum class Unseen : std::uint8_t {
  error,   // throw IoError at the first such text
  ignore,  // use index -1, a one-hot row of zeros
  other,   // use an extra category after the named ones
};

/// Options of Categories::of().
struct CategoriesOptions {
  Unseen unseen = Unseen::error;       // encode()'s treatment of texts absent at collection
  std::int64_t max_categories = 1000;  // a column with more is an error: names or free text are not categories
};

/// The categories of text columns, in a fixed order: equal texts get equal indices in every table. Take them from the
/// training part, or list them explicitly.
class TANDEM_API Categories {
 public:
  /// Takes the names in index order: {"small", "medium", "large"}. Throws ConfigError for an empty list or a repeated
  /// name. Under Unseen::other, the name "(other)" is taken already.
  explicit Categories(std::vector<std::string> names, Unseen unseen = Unseen::error);
  /// Collects the distinct texts of a column, sorted by bytes; under Missing::keep_nan, "" stands for a missing value.
  /// With `rows`, only those rows are read. Throws ConfigError for a numeric column (CsvOptions::text_columns turns it
  /// into text) or a row that does not exist. Throws IoError for more than max_categories, which usually means a column
  /// of names or free text, or a numeric column with a typing error (the message gives the position of the first text).
  static Categories of(const CsvTable& table, std::string_view column, const CategoriesOptions& options = {});
  static Categories of(const CsvTable& table, std::string_view column, std::span<const std::int64_t> rows,
                       const CategoriesOptions& options = {});

  /// The names by index; with Unseen::other, "(other)" comes last.
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// Number of categories.
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(names_.size()); }

  /// Converts a text column to indices into names(). Throws ConfigError for a numeric column. Under Unseen::error,
  /// throws IoError with file and line of the first text that is none of the categories.
  OneHot encode(const CsvTable& table, std::string_view column) const;

 private:
  std::vector<std::string> names_;
  std::int64_t num_named_;
  Unseen unseen_;
};

}  // namespace tandem::inline v0::data
