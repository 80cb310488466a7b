#include <braid/buffer.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using braid::buffer;

std::string const long_text(5000, 'x');

}  // namespace

TEST_CASE("buffer: an empty one has no piece and equals any other empty one") {
  buffer b;
  CHECK(b.empty());
  CHECK(b.size() == 0);
  CHECK(b.piece_count() == 0);
  CHECK(b.flat() == std::string_view{});
  CHECK(b.to_string().empty());
  CHECK(b == buffer{""});
  b.append("");
  b.append(buffer{});
  CHECK(b.piece_count() == 0);
  CHECK(b.slice(0).empty());
  CHECK(b.slice(7, 3).empty());
}

TEST_CASE("buffer: constructing from text copies, take does not") {
  std::string text = long_text;
  const buffer copied{text};
  text[0] = 'y';
  CHECK(copied.to_string() == long_text);
  text[0] = 'x';
  const char* where = text.data();
  const buffer taken = buffer::take(std::move(text));
  REQUIRE(taken.piece_count() == 1);
  CHECK(taken.piece(0).data() == where);
  CHECK(taken == copied);
  CHECK(buffer::take("short").to_string() == "short");
  CHECK(buffer::take("").empty());
}

TEST_CASE("buffer: copies and slices share the bytes") {
  const buffer a{long_text};
  const buffer b = a;
  CHECK(b.piece(0).data() == a.piece(0).data());
  const buffer c = a.slice(10, 20);
  REQUIRE(c.size() == 20);
  CHECK(c.piece(0).data() == a.piece(0).data() + 10);
  CHECK(a.slice(4990).size() == 10);
  CHECK(a.slice(4990, 100).size() == 10);
  CHECK(a.slice(5000).empty());
  CHECK(a.slice(0, 0).piece_count() == 0);
}

TEST_CASE("buffer: appending a buffer adds its pieces by reference, neighbours become one piece") {
  const buffer a{long_text};
  const buffer b{"tail"};
  buffer sum = a;
  sum.append(b);
  REQUIRE(sum.piece_count() == 2);
  CHECK(sum.piece(0).data() == a.piece(0).data());
  CHECK(sum.piece(1).data() == b.piece(0).data());
  CHECK(!sum.flat());
  CHECK(sum.to_string() == long_text + "tail");

  buffer joined = a.slice(0, 100);
  joined.append(a.slice(100));
  CHECK(joined.piece_count() == 1);
  CHECK(joined == a);
}

TEST_CASE("buffer: appending itself doubles it, also where its ends are neighbours") {
  const buffer a{"abcdefghij"};
  buffer b = a.slice(5);
  b.append(a.slice(0, 5));
  REQUIRE(b.to_string() == "fghijabcde");
  b.append(b);
  CHECK(b.to_string() == "fghijabcdefghijabcde");
  b.append(std::move(b));  // NOLINT: the case under test
  CHECK(b.size() == 40);
}

TEST_CASE("buffer: appended text never shows in a buffer that shares the earlier bytes") {
  buffer a{"one"};
  a.append("-two");
  const buffer shared = a;
  a.append("-three");
  buffer other = shared;
  other.append("-four");
  CHECK(shared.to_string() == "one-two");
  CHECK(a.to_string() == "one-two-three");
  CHECK(other.to_string() == "one-two-four");
}

TEST_CASE("buffer: many small appends need few pieces") {
  buffer a;
  std::string expected;
  for (int i = 0; i < 10000; ++i) {
    a.append("0123456789");
    expected += "0123456789";
  }
  CHECK(a.to_string() == expected);
  CHECK(a.piece_count() < 20);
}

TEST_CASE("buffer: wrapped memory is released once, when the last sharer is gone") {
  int released = 0;
  static constexpr std::string_view bytes = "foreign bytes";
  {
    buffer part;
    {
      const buffer whole = buffer::wrap(bytes.data(), bytes.size(), [&] { ++released; });
      CHECK(whole.piece(0).data() == bytes.data());
      part = whole.slice(3, 4);
      part.append("more");  // must not be written behind foreign bytes
    }
    CHECK(released == 0);
    CHECK(part.to_string() == "eignmore");
  }
  CHECK(released == 1);
  CHECK(buffer::wrap(bytes.data(), 0, [&] { ++released; }).empty());
  CHECK(released == 2);
  CHECK(buffer::wrap(bytes.data(), bytes.size(), nullptr).to_string() == bytes);
}

TEST_CASE("buffer: moved-from and cleared ones are empty and usable") {
  for (const int pieces : {1, 2, 3, 9}) {
    buffer a;
    for (int i = 0; i < pieces; ++i) a.append(buffer{std::string(3, static_cast<char>('a' + i))});
    const std::string text = a.to_string();
    buffer b = std::move(a);
    CHECK(a.empty());  // NOLINT: the case under test
    CHECK(a.piece_count() == 0);
    a.append("again");
    CHECK(a.to_string() == "again");
    a = std::move(b);
    CHECK(a.to_string() == text);
    CHECK(b.empty());  // NOLINT: the case under test
    b.append(std::move(a));
    CHECK(b.to_string() == text);
    CHECK(a.empty());  // NOLINT: the case under test
    a = b;
    a = *&a;
    CHECK(a == b);
    b.clear();
    CHECK(b.empty());
    b.append("z");
    CHECK(b.to_string() == "z");
  }
}

TEST_CASE("buffer: equality is by content, however it is cut") {
  const buffer whole{"abcdef"};
  buffer cut{"ab"};
  cut.append(buffer{"c"});
  cut.append(buffer{"def"});
  REQUIRE(cut.piece_count() == 3);
  CHECK(whole == cut);
  CHECK(cut == whole);
  CHECK(!(whole == buffer{"abcdeg"}));
  CHECK(!(whole == buffer{"abcde"}));
}

TEST_CASE("buffer: random appends and slices agree with a string") {
  std::mt19937 random{20260801};
  for (int round = 0; round < 300; ++round) {
    buffer b;
    std::string model;
    for (int step = 0; step < 40; ++step) {
      const auto n = random() % 50;
      const std::string bytes(n, static_cast<char>('a' + random() % 26));
      switch (random() % 5) {
        case 0:
          b.append(bytes), model += bytes;
          break;
        case 1:
          b.append(buffer{bytes}), model += bytes;
          break;
        case 2: {
          const std::size_t from = model.empty() ? 0 : random() % model.size();
          b = b.slice(from, 400), model = model.substr(from, 400);
          break;
        }
        case 3: {
          const buffer copy = b.slice(n);
          const std::string text = n < model.size() ? model.substr(n) : "";
          b.append(copy), model += text;
          break;
        }
        default:
          b.append(buffer::take(std::string{bytes})), model += bytes;
      }
    }
    std::string copied(b.size(), '\0');
    b.copy_to(copied.data());
    std::size_t sum = 0;
    for (std::size_t i = 0; i < b.piece_count(); ++i) sum += b.piece(i).size();
    const bool same = b.to_string() == model && copied == model && sum == model.size() && b == buffer{model};
    REQUIRE(same);
  }
}

TEST_CASE("buffer: distinct buffers that share bytes may be used by several threads") {
  int released = 0;
  {
    buffer shared = buffer::wrap(long_text.data(), long_text.size(), [&] { ++released; });
    shared.append(buffer{"tail"});
    std::array<bool, 4> good{};
    std::vector<std::thread> threads;
    for (auto& ok : good) {
      threads.emplace_back([mine = shared, &ok]() mutable {
        ok = true;
        for (int i = 0; i < 2000; ++i) {
          buffer copy = mine.slice(static_cast<std::size_t>(i), 100);
          copy.append(mine);
          copy.append("own");
          ok = ok && copy.size() == 100 + mine.size() + 3;
        }
      });
    }
    shared.clear();
    for (auto& thread : threads) thread.join();
    CHECK(good == std::array{true, true, true, true});
  }
  CHECK(released == 1);
}
