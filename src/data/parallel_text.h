// Parallel text: line i of one language and its translation. Files are UTF-8, plain or gzip (see line_reader.h for what
// is accepted and which errors there are; all are user errors of one line).
#pragma once
#include <string>
#include <vector>

namespace linnet {

struct ParallelText {
  std::vector<std::string> source, target;  // equally long
};

// One "source<TAB>target" a line. A line without exactly one tab is an error that names it. An empty side is kept, as
// an empty line of paired files is: dropping pairs, and counting them, is the batcher's decision.
ParallelText read_tsv(const std::string& path);

// Two files of equally many lines; unequal counts are an error that gives both.
ParallelText read_pair(const std::string& source_path, const std::string& target_path);

// All lines of one file, at least one: a file without any is an error.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace linnet
