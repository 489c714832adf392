#include <tandem/parallel/rendezvous/meet.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include <tandem/core/failpoint.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kMeetingLook{10};  // between two reads of a key that exists with an outdated value

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
    if (is(Meeting::Kind::once) && store_.add(key(fmt::format("claim/{}", meeting_.rank)), 1, left()) != 1) {
      return {.is_taken = true};
    }
    store_.post_set(here(meeting_.rank), text_of(own_));
    const std::vector<Card> cards = meeting_.rank == 0 ? gather() : await();
    if (!cards.empty() || is(Meeting::Kind::again)) {
      store_.post_erase(here(meeting_.rank));
    }
    Met met;
    if (cards.empty()) {
      met.missing = was_stopped_ ? std::vector<int>() : missing();
      if (met.missing.empty() && !was_stopped_) {
        met.missing = {awaited_};
      }
      return met;
    }
    if (!is(Meeting::Kind::again)) {
      store_.post_count(key("readers"), meeting_.size, key("met"));
    }
    for (const Card& card : cards) {
      met.values.push_back(card.value);
    }
    return met;
  }

  // Asks for one key if rank 0 is here.
  bool is_lowest() {
    for (int rank = 0; rank < meeting_.rank; ++rank) {
      if (store_.try_get(here(rank))) {
        return false;
      }
    }
    return true;
  }

  // Rank 0 erases its key when it has written `met`, which may still be on its way to us.
  bool has_met() {
    const std::vector<Card> cards = cards_in(store_.try_get(key("met")));
    return std::any_of(cards.begin(), cards.end(), [&](const Card& card) { return card.value == meeting_.value; });
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
      std::this_thread::sleep_for(cards.empty() ? milliseconds(0) : kMeetingLook);
    } while (!is_over());
    awaited_ = rank;
    return std::nullopt;
  }

  // On the other ranks: returns all cards once they include this rank's card, or none if that does not happen.
  std::vector<Card> await() {
    do {
      std::vector<Card> cards = look_for(key("met"));
      if (contains(cards, own_)) {
        return cards;
      }
      look_at_leader();
      std::this_thread::sleep_for(cards.empty() ? milliseconds(0) : kMeetingLook);  // the cards of an earlier meeting
    } while (!is_over());
    return {};
  }

  std::vector<Card> look_for(const std::string& key) {
    return cards_in(store_.get_while(key, left(), [this] {
      look_at_leader();
      return !is_stopped();
    }));
  }

  // A rank that has to wait compares rank 0's value with its own.
  void look_at_leader() {
    if (meeting_.check && meeting_.rank != 0 && !has_checked_leader_) {
      const std::vector<Card> leader = cards_in(store_.try_get(here(0)));
      if (!leader.empty()) {
        check(0, leader.front());
        has_checked_leader_ = true;
      }
    }
  }

  void check(int rank, const Card& card) const {
    if (meeting_.check) {
      meeting_.check(rank, card.value);
    }
  }

  // goes_on() may return false only once.
  bool is_stopped() {
    was_stopped_ = was_stopped_ || (meeting_.goes_on && !meeting_.goes_on());
    return was_stopped_;
  }

  bool is_over() { return is_stopped() || Clock::now() >= meeting_.deadline; }

  Store& store_;
  const Meeting& meeting_;
  const Card own_;
  int awaited_ = 0;
  bool was_stopped_ = false;
  bool has_checked_leader_ = false;
};

}  // namespace

Met meet(Store& store, const Meeting& meeting) {
  core::failpoint("meet");
  return Place(store, meeting).run();
}

std::vector<int> ranks_missing(Store& store, const Meeting& meeting) { return Place(store, meeting).missing(); }

std::vector<int> ranks_missing_for_lowest(Store& store, const Meeting& meeting) {
  Place place(store, meeting);
  return place.is_lowest() && !place.has_met() ? place.missing() : std::vector<int>();
}

std::string random_name() { return JobToken::generate().hex().substr(0, 16); }

}  // namespace tandem::inline v0::parallel
