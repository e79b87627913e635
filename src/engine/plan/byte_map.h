// Which value holds each byte of a region, to prove plans (verify_plan.cpp). Many values are columns of a matrix: rows
// of bytes at equal distances. There a piece of the map is a grid whose rows all have the same owners, so a matrix
// costs one row.
#pragma once
#include <cstddef>
#include <map>
#include <vector>
#include "base/functions.h"
#include "engine/ir/graph.h"

namespace linnet {
// `rows` rows of `width` bytes, one every `pitch` bytes. width <= pitch if there are several rows.
struct ByteRows {
  size_t begin = 0, rows = 1, pitch = 0, width = 0;
};

class ByteMap {
 public:
  using Allowed = FunctionRef<bool(ValueId owner)>;

  void write(const ByteRows& bytes, ValueId owner);
  // Whether every byte is held by an allowed value. True for no bytes.
  bool holds(const ByteRows& bytes, Allowed allowed) const;
  bool touches(const ByteRows& bytes) const;  // whether a value holds any byte

 private:
  // Bytes [begin, end) of a piece's row, or of the whole piece if its pitch is 0.
  struct Column {
    size_t begin, end;
    ValueId owner;
  };
  // Columns are ordered and disjoint; bytes between them have no owner.
  struct Piece {
    size_t end;
    size_t pitch;  // of a grid, which has whole rows; 0: one row
    std::vector<Column> columns;

    size_t row_bytes(size_t begin) const { return pitch ? pitch : end - begin; }
    bool is_of_one_value(size_t begin) const {
      return pitch == 0 && columns.size() == 1 && columns[0].begin == 0 && columns[0].end == end - begin;
    }
  };
  using Pieces = std::map<size_t, Piece>;  // by the first byte

  Pieces::const_iterator at(size_t byte) const;  // the piece that has the byte, or the end
  // Splits a piece that spans the byte, so that the byte begins a piece.
  void split(size_t byte);
  void write_row(size_t begin, size_t end, ValueId owner);
  // Whether test(piece, begin, end), of bytes relative to a row of the piece, holds for all parts of `bytes` or,
  // without `all`, for any. Bytes outside of pieces fail it.
  using Test = FunctionRef<bool(const Piece& piece, size_t begin, size_t end)>;
  bool check(const ByteRows& bytes, bool all, Test test) const;
  bool check_row(size_t begin, size_t end, bool all, Test test) const;
  // How many of the `rows` rows from `begin` on lie in the same columns of the piece's rows.
  static size_t rows_in(const Pieces::value_type& piece, const ByteRows& bytes, size_t begin, size_t rows);
  static void set(std::vector<Column>& columns, Column column);

  Pieces pieces_;
};
}  // namespace linnet
