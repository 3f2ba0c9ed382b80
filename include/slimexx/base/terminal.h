// What stderr leads to.
#pragma once

namespace slimexx {

bool is_terminal();   // stderr is a TTY, and TERM is neither missing nor dumb
bool wants_colour();  // it is, and NO_COLOR is not set

}  // namespace slimexx
