// Records of texts as their files have them.
#include "tasks/texts/text_records.h"
#include <gtest/gtest.h>
#include "base/error.h"
#include "tasks/texts/marked_texts.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using Texts = std::vector<std::string>;

class TextFiles : public ::testing::Test {
 protected:
  Texts tagged(const std::string& text) {
    return mapped(read_tagged_texts(folder_.write("words.conll", text), {}).records,
        [](const TextRecord& record) { return record.text + " " + record.label["tags"].dump(); });
  }
  std::string problem_of(const std::string& name, const std::string& text) {
    try {
      read_text_records(folder_.write(name, text), {});
    } catch (const Error& error) {
      return std::string(error.what()).substr(folder_.path().size() + 1);
    }
    return "";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TextFiles, CommentsBeforeAnEntryOfConllAreNoWords) {
  const Texts two{R"(Anna sings ["B-PER","O"])", R"(# 1 ["O","O"])"};
  EXPECT_EQ(tagged("# newdoc\n#\n\n# text = Anna sings\n# one more\nAnna B-PER\nsings O\n\n# O\n1 O\n"), two);
  EXPECT_EQ(tagged("Anna NN X B-PER\nsings VB X O\n\n# id 2-a domain=x\n# NN X O\n1 CD X O\n"), two);
  EXPECT_EQ(tagged("a O\n# O\nb O\n"), Texts{R"(a # b ["O","O","O"])"});
  const std::string untagged = folder_.write("untagged.conll", "# a text of words\nAnna\n#\n");
  Texts found;
  for_each_text_of_words(untagged, {}, [&](const std::string& text) { found.push_back(text); });
  EXPECT_EQ(found, Texts{"Anna #"});
}

TEST_F(TextFiles, AMissingValueIsNotANull) {
  EXPECT_EQ(problem_of("a.jsonl", R"({"text": "a", "label": null})"), "a.jsonl:1: \"label\" is null");
  EXPECT_EQ(problem_of("b.jsonl", R"({"text": null, "label": "x"})"), "b.jsonl:1: \"text\" is null");
  EXPECT_EQ(problem_of("c.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\"}\n"),
      "c.jsonl:2: there is no \"label\"");
}

TEST_F(TextFiles, MissingColumnsAreNamedTogetherAtTheHeading) {
  const std::string end = "--set data.text_column=NAME and data.label_column=NAME say which";
  EXPECT_EQ(problem_of("a.csv", "Text,kind\na,x\n"),
      "a.csv:1: no field is called \"text\" (did you mean \"Text\"?) or \"label\" (there are Text, kind; the first "
      "line "
      "of a .csv file is its heading); " +
          end);
  EXPECT_EQ(problem_of("b.jsonl", "{\"text\": \"a\", \"lable\": 1}\n"),
      "b.jsonl:1: no field is called \"label\" (did you mean \"lable\"?) (there are text, lable); " + end);
}
}  // namespace
}  // namespace linnet
