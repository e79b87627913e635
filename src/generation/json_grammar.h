// The JSON texts that fit a schema, as a grammar of their bytes.
#pragma once
#include "base/json.h"
#include "generation/text_grammar.h"

namespace linnet {

// Any object: what a schema leaves open nests up to 16 levels deep.
TextGrammar json_object_grammar();

// Of JSON Schema: type (also several), properties, required, additionalProperties (true and false), items, enum, const,
// anyOf, true; titles, descriptions and the like say nothing. User error that names any other keyword and where it
// stands. The grammar has some of the texts that fit: an object has the properties that the schema names, in its
// order; numbers have at most 15 digits on either side of the point; white space is a blank or a line end with up to 20
// blanks.
TextGrammar json_schema_grammar(const Json& schema);

}  // namespace linnet
