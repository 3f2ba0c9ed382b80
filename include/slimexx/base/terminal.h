// Whether stderr is a terminal and supports colors.
#pragma once

namespace slimexx {

bool is_terminal();   // stderr is a TTY, and TERM is set and not "dumb"
bool wants_colour();  // is_terminal(), and NO_COLOR is not set

}  // namespace slimexx
