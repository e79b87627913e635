// The page to try models on, which the server gives at "/".
#pragma once
#include "serve/http.h"

namespace linnet {

HttpResponse try_page();

}  // namespace linnet
