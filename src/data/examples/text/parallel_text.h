// Parallel text: line i of one language and its translation. Files are UTF-8, plain or gzip (see line_reader.h for what
// is accepted and which errors there are; all are user errors of one line).
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace linnet {

struct ParallelText {
  std::vector<std::string> source, target;  // equally long
};

// Fields that hold a pair; empty: the usual names ("source", "src"; "target", "tgt"), else both that there are.
struct PairColumns {
  std::string source, target;
};

// A .csv or JSON lines (record_reader.h), whose fields may lie within "translation", as in data sets of Hugging Face;
// or one "source<TAB>target" a line. Of the latter, what a third column holds is left out. A line without a tab, or
// with more columns, is an error that names it. An empty side is kept, as an empty line of paired files is: dropping
// pairs, and counting them, is the batcher's decision.
ParallelText read_table(const std::string& path, const PairColumns& columns = {});

// The first two columns of a line that has two or three. `where`: "path:line", for messages.
std::pair<std::string, std::string> split_pair(const std::string& line, const std::string& where);

// Two files of equally many lines; unequal counts are an error that gives both.
ParallelText read_pair(const std::string& source_path, const std::string& target_path);

// All lines of one file, at least one: a file without any is an error.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace linnet
