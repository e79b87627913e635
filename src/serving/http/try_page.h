// The page to try models on, which the server gives at "/".
#pragma once
#include "serving/http/http.h"

namespace linnet {

HttpResponse try_page();

}  // namespace linnet
