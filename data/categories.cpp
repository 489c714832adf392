#include <tandem/data/categories.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/data/diagnostics.h>

namespace tandem::inline v0::data {

Categories::Categories(std::vector<std::string> names, Unseen unseen)
    : names_(std::move(names)), num_named_(static_cast<std::int64_t>(names_.size())), unseen_(unseen) {
  check<ConfigError>(!names_.empty(), "Categories: expected at least one name");
  std::unordered_set<std::string_view> different;
  for (const std::string& name : names_) {
    check<ConfigError>(different.insert(name).second, "Categories: the name {} is used twice", excerpt(name));
  }
  if (unseen_ == Unseen::other) {
    check<ConfigError>(!different.contains("(other)"),
                       "Categories: the name '(other)' is used twice: Unseen::other adds it for all other texts");
    names_.emplace_back("(other)");
  }
}

Categories Categories::of(const CsvTable& table, std::string_view column, const CategoriesOptions& options) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(table.num_rows()));
  std::iota(all.begin(), all.end(), 0);
  return of(table, column, all, options);
}

Categories Categories::of(const CsvTable& table, std::string_view column, std::span<const std::int64_t> rows,
                          const CategoriesOptions& options) {
  const CsvColumn& described = table.column(table.column_index(column));
  const auto texts = table.text(column);
  std::unordered_set<std::string_view> different;
  for (const std::int64_t row : rows) {
    table.line_of_row(row);  // checks that the row exists
    different.insert(texts[static_cast<std::size_t>(row)]);
    if (static_cast<std::int64_t>(different.size()) > options.max_categories) {
      fail<IoError>(
          "{}: column {} has more than {} different texts, too many for one-hot; the first text is {} in line {}, "
          "column {}",
          table.source(), excerpt(described.name), options.max_categories, described.first_text_excerpt,
          described.first_text.line, described.first_text.column);
    }
  }
  std::vector<std::string> names(different.begin(), different.end());
  std::sort(names.begin(), names.end());
  return Categories(std::move(names), options.unseen);
}

OneHot Categories::encode(const CsvTable& table, std::string_view column) const {
  std::unordered_map<std::string_view, std::int64_t> position;
  for (std::int64_t i = 0; i < num_named_; ++i) {
    position.emplace(names_[static_cast<std::size_t>(i)], i);
  }
  OneHot result{.categories = names_, .indices = {}};
  const auto texts = table.text(column);
  result.indices.reserve(texts.size());
  for (const std::string& text : texts) {
    const auto found = position.find(text);
    if (found == position.end() && unseen_ == Unseen::error) [[unlikely]] {
      const auto row = static_cast<std::int64_t>(result.indices.size());
      fail<IoError>("{}:{}: column {}: {} is none of the categories {}; add it, or set Unseen::ignore or Unseen::other",
                    table.source(), table.line_of_row(row), excerpt(column), excerpt(text), list_of(names_));
    }
    result.indices.push_back(found != position.end() ? found->second : unseen_ == Unseen::ignore ? -1 : num_named_);
  }
  return result;
}

OneHot one_hot(const CsvTable& table, std::string_view column, std::int64_t max_categories) {
  return Categories::of(table, column, {.max_categories = max_categories}).encode(table, column);
}

}  // namespace tandem::inline v0::data
