#include <tandem/parallel/rendezvous/meet.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSlice{200};  // of a wait, between two calls of goes_on()
constexpr milliseconds kLook{10};    // between two reads of a key that exists with an outdated value

// A mark, the length of the value, and the value: "0123456789abcdef 5 hello".
struct Card {
  std::string mark;
  std::string value;

  bool operator==(const Card&) const = default;
};

std::string text_of(const Card& card) { return fmt::format("{} {} {}", card.mark, card.value.size(), card.value); }

std::vector<Card> cards_in(const std::optional<std::string>& text) {
  std::vector<Card> cards;
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  for (std::size_t mark = rest.find(' '); mark != std::string_view::npos; mark = rest.find(' ')) {
    const std::size_t length = std::min(rest.find(' ', mark + 1), rest.size() - 1);
    std::size_t bytes = 0;
    std::from_chars(rest.data() + mark + 1, rest.data() + length, bytes);
    cards.push_back({std::string(rest.substr(0, mark)), std::string(rest.substr(length + 1, bytes))});
    rest.remove_prefix(std::min(rest.size(), length + 1 + bytes));
  }
  return cards;
}

bool contains(const std::vector<Card>& cards, const Card& card) {
  return std::find(cards.begin(), cards.end(), card) != cards.end();
}

class Place {
 public:
  Place(Store& store, const Meeting& meeting) : store_(store), meeting_(meeting), own_{random_name(), meeting.value} {}

  Met run() {
    const std::string claim = key(fmt::format("claim/{}", meeting_.rank));
    if (is(Meeting::Kind::once) && (store_.add(claim, 1, left()) != 1 || store_.try_get(key("made")))) {
      return {.is_taken = true};
    }
    store_.set(here(meeting_.rank), text_of(own_), left());
    const std::vector<Card> cards = meeting_.rank == 0 ? gather() : await();
    if (!cards.empty() || is(Meeting::Kind::again)) {
      store_.erase(here(meeting_.rank));
    }
    Met met;
    if (cards.empty()) {
      met.missing = was_stopped_ ? std::vector<int>() : missing();
      if (met.missing.empty() && !was_stopped_) {
        met.missing = {awaited_};
      }
      return met;
    }
    if (is(Meeting::Kind::once)) {
      store_.erase(claim);
    }
    if (!is(Meeting::Kind::again) && store_.add(key("readers"), 1) == meeting_.size) {
      store_.erase(key("met"));
      store_.erase(key("readers"));
    }
    for (const Card& card : cards) {
      met.values.push_back(card.value);
    }
    return met;
  }

  std::vector<int> missing() {
    std::vector<int> ranks;
    for (int rank = 0; rank < meeting_.size; ++rank) {
      if (rank != meeting_.rank && !store_.try_get(here(rank))) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

 private:
  bool is(Meeting::Kind kind) const { return meeting_.kind == kind; }
  std::string key(std::string_view name) const { return fmt::format("{}/{}", meeting_.prefix, name); }
  std::string here(int rank) const { return key(fmt::format("here/{}", rank)); }

  milliseconds left() const {
    return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(meeting_.deadline - Clock::now()));
  }

  // On rank 0: returns the cards of all ranks, or none if some rank does not come.
  std::vector<Card> gather() {
    const std::vector<Card> before =
        is(Meeting::Kind::again) ? cards_in(store_.try_get(key("met"))) : std::vector<Card>();
    std::vector<Card> cards(static_cast<std::size_t>(meeting_.size));
    cards[0] = own_;
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (int rank = 1; rank < meeting_.size; ++rank) {
        const std::optional<Card> card = card_of(rank, before);
        if (!card) {
          return {};
        }
        has_changed = has_changed || cards[static_cast<std::size_t>(rank)] != *card;
        cards[static_cast<std::size_t>(rank)] = *card;
      }
    }
    if (is(Meeting::Kind::once)) {
      store_.set(key("made"), "");  // must exist before any claim is erased
    }
    std::string all;
    for (const Card& card : cards) {
      all += text_of(card);
    }
    store_.set(key("met"), all);
    return cards;
  }

  std::optional<Card> card_of(int rank, const std::vector<Card>& before) {
    do {
      const std::vector<Card> cards = look_for(here(rank));
      if (!cards.empty() && !contains(before, cards.front())) {
        check(rank, cards.front());
        return cards.front();
      }
      std::this_thread::sleep_for(cards.empty() ? milliseconds(0) : kLook);
    } while (!is_over());
    awaited_ = rank;
    return std::nullopt;
  }

  // On the other ranks: returns all cards once they include this rank's card, or none if that does not happen.
  std::vector<Card> await() {
    bool is_checked = !meeting_.check;
    do {
      const std::vector<Card> leader = is_checked ? std::vector<Card>() : cards_in(store_.try_get(here(0)));
      if (!leader.empty()) {
        check(0, leader.front());
        is_checked = true;
      }
      std::vector<Card> cards = look_for(key("met"));
      if (contains(cards, own_)) {
        return cards;
      }
      std::this_thread::sleep_for(cards.empty() ? milliseconds(0) : kLook);  // the cards of an earlier meeting
    } while (!is_over());
    return {};
  }

  // Returns the cards that arrive within one slice of the wait.
  std::vector<Card> look_for(const std::string& key) {
    try {
      return cards_in(store_.get(key, std::min(kSlice, left())));
    } catch (const StoreError& error) {
      if (error.kind() != StoreError::Kind::timeout) {
        throw;
      }
      return {};
    }
  }

  void check(int rank, const Card& card) const {
    if (meeting_.check) {
      meeting_.check(rank, card.value);
    }
  }

  bool is_over() {
    was_stopped_ = meeting_.goes_on && !meeting_.goes_on();
    return was_stopped_ || Clock::now() >= meeting_.deadline;
  }

  Store& store_;
  const Meeting& meeting_;
  const Card own_;
  int awaited_ = 0;
  bool was_stopped_ = false;
};

}  // namespace

Met meet(Store& store, const Meeting& meeting) { return Place(store, meeting).run(); }

std::vector<int> ranks_missing(Store& store, const Meeting& meeting) { return Place(store, meeting).missing(); }

std::string random_name() { return JobToken::generate().hex().substr(0, 16); }

}  // namespace tandem::inline v0::parallel
