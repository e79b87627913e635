#include "data/examples/text/parallel_text.h"
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include "base/files.h"
#include "base/process.h"
#include "data/examples/text/record_reader.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

class ParallelTextTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) { return made_.write(name, bytes); }
  std::string write_gzip(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ + "/" + name;
    gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    ::gzclose(file);
    return path;
  }
  // The message of the user error that `action` must raise, with the folder's name left out.
  std::string error_of(const std::function<void()>& action) {
    return without_folder(linnet::error_of(action), folder_);
  }

  const testing::TemporaryFolder made_;
  const std::string folder_ = made_.path();
};

// Refused after 64 MiB, whatever the size; the same bytes in a plain file are read.
TEST_F(ParallelTextTest, AGzipFileThatExpandsTooFarIsRefused) {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += std::string(800, 'a') + "\n";
  const auto count = [&](const std::string& path) {
    LineReader reader(path);
    std::string line;
    while (reader.next(line)) continue;
    return reader.line_number();
  };
  EXPECT_PRED2(has_text, error_of([&] { count(write_gzip("bomb.gz", bytes)); }),
      "'bomb.gz' expands to more than 64 MiB and 200 times its size");
  EXPECT_EQ(count(write("plain", bytes)), 100'000);
}

TEST_F(ParallelTextTest, ReadsPlainLines) {
  EXPECT_EQ(read_lines(write("a", "eins\nzwei\n")), (Lines{"eins", "zwei"}));
  EXPECT_EQ(read_lines(write("b", "eins\r\nzwei")), (Lines{"eins", "zwei"}));
  EXPECT_EQ(read_lines(write("c",
                "\xEF\xBB\xBF"
                "Grüße\n\n")),
      (Lines{"Grüße", ""}));
  EXPECT_EQ(read_lines(write("d", "\n")), (Lines{""}));
  EXPECT_EQ(read_lines(write("e", "a\rb\n")), (Lines{"a\rb"}));
}

TEST_F(ParallelTextTest, ReadsGzipWhateverItsName) {
  EXPECT_EQ(read_lines(write_gzip("a.gz", "eins\nzwei\n")), (Lines{"eins", "zwei"}));
  EXPECT_EQ(read_lines(write_gzip("a.txt",
                "\xEF\xBB\xBF"
                "ä\r\n")),
      (Lines{"ä"}));
  EXPECT_EQ(read_lines(write("plain.gz", "not packed\n")), (Lines{"not packed"}));
  // Two gzip members one after the other are one text.
  const std::string both = read_file(write_gzip("1.gz", "x\ny")) + read_file(write_gzip("2.gz", "z\n"));
  EXPECT_EQ(read_lines(write("both.gz", both)), (Lines{"x", "yz"}));
}

TEST_F(ParallelTextTest, LinesLongerThanTheBuffer) {
  Lines lines;
  std::string bytes;
  for (size_t i = 0; i < 60; ++i) {
    lines.push_back(std::string(i * 4001, static_cast<char>('a' + i % 26)) + "é");
    bytes += lines.back() + (i % 2 ? "\n" : "\r\n");
  }
  EXPECT_EQ(read_lines(write("long", bytes)), lines);
  EXPECT_EQ(read_lines(write_gzip("long.gz", bytes)), lines);
}

TEST_F(ParallelTextTest, ReadsTsvAndPairs) {
  const ParallelText tsv = read_table(write("a.tsv", "a dog\tein Hund\r\n\tnur hier\nend\t"));
  EXPECT_EQ(tsv.source, (Lines{"a dog", "", "end"}));
  EXPECT_EQ(tsv.target, (Lines{"ein Hund", "nur hier", ""}));
  const ParallelText pair = read_pair(write("a.en", "a\nb\n"), write_gzip("a.de.gz", "x\ny"));
  EXPECT_EQ(pair.source, (Lines{"a", "b"}));
  EXPECT_EQ(pair.target, (Lines{"x", "y"}));
}

TEST_F(ParallelTextTest, AHeadingIsNoPair) {
  for (const char* heading : {"source\ttarget", "Source\tTarget", "src\ttgt"}) {
    const ParallelText tsv = read_table(write("a.tsv", heading + std::string("\na dog\tein Hund\nsource\ttarget\n")));
    EXPECT_EQ(tsv.source, (Lines{"a dog", "source"})) << heading;
    EXPECT_EQ(tsv.target, (Lines{"ein Hund", "target"})) << heading;
  }
  EXPECT_EQ(read_table(write("b.tsv", "source\tQuelle\n")).source, (Lines{"source"}));
}

TEST_F(ParallelTextTest, ReadsCommasAndJsonLines) {
  const auto expect_pairs = [](const ParallelText& text) {
    EXPECT_EQ(text.source, (Lines{"a, dog", "b"}));
    EXPECT_EQ(text.target, (Lines{"ein \"Hund\"", "c"}));
  };
  expect_pairs(read_table(write("a.csv", "src,tgt\n\"a, dog\",\"ein \"\"Hund\"\"\"\nb,c\n")));
  const std::string rows =
      "{\"translation\": {\"en\": \"a, dog\", \"de\": \"ein \\\"Hund\\\"\"}}\n"
      "{\"translation\": {\"en\": \"b\", \"de\": \"c\"}}\n";
  expect_pairs(read_table(write_gzip("a.jsonl.gz", rows)));
  const std::string named = write("a.tsv", "id\tde\ten\n1\tein \"Hund\"\ta, dog\n2\tc\tb\n");
  expect_pairs(read_table(named, {"en", "de"}));
  EXPECT_EQ(error_of([&] {
    read_table(named, {"en", "fr"});
  }),
      "a.tsv:2: no text is called \"fr\" (there are id, de, en); --text-column and --label-column name source and "
      "target");
  EXPECT_PRED2(has_text,
      error_of([&] { read_table(write("b.jsonl", "{\"a\": \"x\", \"b\": \"y\", \"c\": \"z\"}\n")); }),
      "no text is called \"source\" (there are a, b, c)");
}

TEST_F(ParallelTextTest, FilesThatCannotBeRead) {
  EXPECT_EQ(error_of([&] { read_lines(folder_ + "/none.en"); }), "cannot read 'none.en': No such file or directory");
  fs::create_directory(folder_ + "/sub");
  EXPECT_EQ(
      error_of([&] { read_lines(folder_ + "/sub"); }), "cannot read 'sub': it is a directory, a text file is needed");
  const std::string empty = write("empty.txt", "");
  EXPECT_EQ(error_of([&] { read_lines(empty); }), "'empty.txt' is empty");
  EXPECT_EQ(error_of([&] { read_table(empty); }), "'empty.txt' is empty");
  EXPECT_EQ(error_of([&] { read_lines(write_gzip("empty.gz", "")); }), "'empty.gz' is empty");
  if (::geteuid() != 0) {  // root may read everything
    const std::string locked = write("locked.txt", "x\n");
    fs::permissions(locked, fs::perms::none);
    EXPECT_EQ(error_of([&] { read_lines(locked); }), "cannot read 'locked.txt': Permission denied");
  }
}

TEST_F(ParallelTextTest, AThirdColumnIsLeftOut) {
  const ParallelText tsv = read_table(write("tatoeba.tsv", "Go.\tGeh.\tCC-BY 2.0 (France)\nHi.\tHallo!\t\nOh\tAch\n"));
  EXPECT_EQ(tsv.source, (Lines{"Go.", "Hi.", "Oh"}));
  EXPECT_EQ(tsv.target, (Lines{"Geh.", "Hallo!", "Ach"}));
}

TEST_F(ParallelTextTest, OtherFormatsAreNamed) {
  const auto told = [&](const std::string& name, const std::string& bytes) {
    return error_of([&] { read_lines(write(name, bytes)); });
  };
  EXPECT_EQ(told("a.zip", std::string("PK\x03\x04\x14\0\0\0", 8)),
      "'a.zip' is a zip archive; unpack it first (unzip), or save a spreadsheet as .csv");
  EXPECT_EQ(told("a.xz", std::string("\xFD\x37zXZ\0\0\x04", 8)),
      "'a.xz' is compressed with xz; decompress it first (xz -d), or use gzip");
  EXPECT_EQ(told("a.zst", "\x28\xB5\x2F\xFD\x24"),
      "'a.zst' is compressed with zstd; decompress it first (zstd -d), or use gzip");
  EXPECT_EQ(told("a.pdf", "%PDF-1.4\n1 0 obj\n"), "'a.pdf' is a PDF; take its text out first (pdftotext)");
  EXPECT_EQ(told("a.xls", "\xD0\xCF\x11\xE0\xA1\xB1"),
      "'a.xls' is an old file of Office (.xls, .doc); save a spreadsheet as .csv, a document as text");
  EXPECT_EQ(told("a.arrow", std::string("ARROW1\0\0\x10", 9)),
      "'a.arrow' is an Arrow file; write its text as .jsonl or .tsv first");
  EXPECT_EQ(read_lines(write("ok.txt", "PK and BZh are letters\n")), (Lines{"PK and BZh are letters"}));
}

TEST_F(ParallelTextTest, DamagedGzip) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * 7919) + "\n";
  const std::string good = read_file(write_gzip("good.gz", text));
  for (const size_t size : {good.size() - 1, good.size() - 8, good.size() / 2, size_t{11}, size_t{5}, size_t{2}})
    EXPECT_EQ(error_of([&] { read_lines(write("cut.gz", good.substr(0, size))); }), "'cut.gz' is a truncated gzip file")
        << size;
  std::string flipped = good;
  flipped[good.size() - 6] ^= 1;  // in the checksum
  EXPECT_EQ(error_of([&] { read_lines(write("bad.gz", flipped)); }),
      "'bad.gz' is a corrupt gzip file (incorrect data check)");
  flipped = good;
  for (size_t i = good.size() / 3; i < good.size() / 3 + 64; ++i) flipped[i] = '\xFF';
  EXPECT_NE(error_of([&] { read_lines(write("bad.gz", flipped)); }), "no error");
}

TEST_F(ParallelTextTest, UnequalLineCountsGiveBoth) {
  EXPECT_EQ(error_of([&] { read_pair(write("a.en", "a\nb\nc\n"), write("a.de", "x\n")); }),
      "unequal line counts: 'a.en' has 3 lines, 'a.de' has 1 line");
}

TEST_F(ParallelTextTest, TsvLinesWithoutExactlyOneTab) {
  EXPECT_EQ(error_of([&] { read_table(write("a.tsv", "a\tb\nno tab here\n")); }),
      "a.tsv:2: expected source<TAB>target, found no tab");
  EXPECT_EQ(error_of([&] { read_table(write("a.tsv", "a\tb\tc\td\n")); }),
      "a.tsv:1: expected source<TAB>target, found 3 tabs");
  EXPECT_EQ(error_of([&] { read_table(write("a.tsv", "a\tb\n\n")); }),
      "a.tsv:2: expected source<TAB>target, found an empty line");
}

TEST_F(ParallelTextTest, NulBytesWithoutALineEndAreRefusedBeforeTheyAreRead) {
  const std::string path = write("zeros.txt", "abc");
  fs::resize_file(path, uint64_t{1} << 30);
  const uint64_t before = peak_resident_bytes();
  EXPECT_EQ(error_of([&] { read_lines(path); }), "zeros.txt:1: NUL byte at byte 4 of the line; is this a text file?");
  EXPECT_LT(peak_resident_bytes() - before, uint64_t{64} << 20);
}

TEST_F(ParallelTextTest, BytesThatAreNotText) {
  EXPECT_EQ(error_of([&] {
    read_lines(write("latin1.txt",
        "ok\nGr\xFC\xDF"
        "e\n"));
  }),
      "latin1.txt:2: invalid UTF-8 at byte 3 of the line (iconv -f LATIN1 -t UTF-8 converts a file in Latin-1)");
  EXPECT_EQ(error_of([&] { read_lines(write("cut.txt", "abc\xE2\x82")); }),
      "cut.txt:1: invalid UTF-8 at byte 4 of the line (iconv -f LATIN1 -t UTF-8 converts a file in Latin-1)");
  EXPECT_EQ(error_of([&] { read_lines(write("nul.txt", std::string("ab\0c\n", 5))); }),
      "nul.txt:1: NUL byte at byte 3 of the line; is this a text file?");
  EXPECT_EQ(error_of([&] {
    read_lines(write("utf16.txt", std::string("\xFF\xFE"
                                              "a\0\n\0",
                                      6)));
  }),
      "utf16.txt:1: invalid UTF-8 at byte 1 of the line (this looks like UTF-16; convert the file to UTF-8)");
}
}  // namespace
}  // namespace linnet
