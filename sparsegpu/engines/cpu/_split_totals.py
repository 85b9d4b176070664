"""What two stripes keep in each of the 35 splits of their eight columns, written out.

The compiler vectorises this over rows, which it does not do with loops over splits. Of a pair of
columns ``s`` is the sum and ``m`` the maximum; ``t<w>`` is the total of split w of `splits`.
"""

from __future__ import annotations

import numpy as np

from ._jit import jit


@jit()
def two(m, n, s, t):
    """Return the two largest of four: one of each pair, or both of one."""
    return max(np.int32(m + n), max(s, t))


@jit()
def add(x, y):
    """Add without leaving int32."""
    return np.int32(x + y)


@jit()
def add_kept(totals, keys, columns, start, stop):
    """Add what rows ``start`` to ``stop`` keep; the sums of those rows fit int32."""
    k0 = keys[columns[0]][start:stop]
    k1 = keys[columns[1]][start:stop]
    k2 = keys[columns[2]][start:stop]
    k3 = keys[columns[3]][start:stop]
    k4 = keys[columns[4]][start:stop]
    k5 = keys[columns[5]][start:stop]
    k6 = keys[columns[6]][start:stop]
    k7 = keys[columns[7]][start:stop]
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = np.int32(0)
    t7 = t8 = t9 = t10 = t11 = t12 = t13 = np.int32(0)
    t14 = t15 = t16 = t17 = t18 = t19 = t20 = np.int32(0)
    t21 = t22 = t23 = t24 = t25 = t26 = t27 = np.int32(0)
    t28 = t29 = t30 = t31 = t32 = t33 = t34 = np.int32(0)
    for r in range(stop - start):
        x0, x1, x2, x3 = k0[r], k1[r], k2[r], k3[r]
        x4, x5, x6, x7 = k4[r], k5[r], k6[r], k7[r]
        s01, m01 = add(x0, x1), max(x0, x1)
        s02, m02 = add(x0, x2), max(x0, x2)
        s03, m03 = add(x0, x3), max(x0, x3)
        s04, m04 = add(x0, x4), max(x0, x4)
        s05, m05 = add(x0, x5), max(x0, x5)
        s12, m12 = add(x1, x2), max(x1, x2)
        s13, m13 = add(x1, x3), max(x1, x3)
        s14, m14 = add(x1, x4), max(x1, x4)
        s15, m15 = add(x1, x5), max(x1, x5)
        s23, m23 = add(x2, x3), max(x2, x3)
        s24, m24 = add(x2, x4), max(x2, x4)
        s25, m25 = add(x2, x5), max(x2, x5)
        s26, m26 = add(x2, x6), max(x2, x6)
        s27, m27 = add(x2, x7), max(x2, x7)
        s34, m34 = add(x3, x4), max(x3, x4)
        s35, m35 = add(x3, x5), max(x3, x5)
        s36, m36 = add(x3, x6), max(x3, x6)
        s37, m37 = add(x3, x7), max(x3, x7)
        s45, m45 = add(x4, x5), max(x4, x5)
        s46, m46 = add(x4, x6), max(x4, x6)
        s47, m47 = add(x4, x7), max(x4, x7)
        s56, m56 = add(x5, x6), max(x5, x6)
        s57, m57 = add(x5, x7), max(x5, x7)
        s67, m67 = add(x6, x7), max(x6, x7)
        t0 = add(t0, add(two(m01, m23, s01, s23), two(m45, m67, s45, s67)))
        t1 = add(t1, add(two(m01, m24, s01, s24), two(m35, m67, s35, s67)))
        t2 = add(t2, add(two(m01, m34, s01, s34), two(m25, m67, s25, s67)))
        t3 = add(t3, add(two(m02, m34, s02, s34), two(m15, m67, s15, s67)))
        t4 = add(t4, add(two(m01, m25, s01, s25), two(m34, m67, s34, s67)))
        t5 = add(t5, add(two(m01, m35, s01, s35), two(m24, m67, s24, s67)))
        t6 = add(t6, add(two(m02, m35, s02, s35), two(m14, m67, s14, s67)))
        t7 = add(t7, add(two(m01, m45, s01, s45), two(m23, m67, s23, s67)))
        t8 = add(t8, add(two(m02, m45, s02, s45), two(m13, m67, s13, s67)))
        t9 = add(t9, add(two(m03, m45, s03, s45), two(m12, m67, s12, s67)))
        t10 = add(t10, add(two(m01, m26, s01, s26), two(m34, m57, s34, s57)))
        t11 = add(t11, add(two(m01, m36, s01, s36), two(m24, m57, s24, s57)))
        t12 = add(t12, add(two(m02, m36, s02, s36), two(m14, m57, s14, s57)))
        t13 = add(t13, add(two(m01, m46, s01, s46), two(m23, m57, s23, s57)))
        t14 = add(t14, add(two(m02, m46, s02, s46), two(m13, m57, s13, s57)))
        t15 = add(t15, add(two(m03, m46, s03, s46), two(m12, m57, s12, s57)))
        t16 = add(t16, add(two(m01, m56, s01, s56), two(m23, m47, s23, s47)))
        t17 = add(t17, add(two(m02, m56, s02, s56), two(m13, m47, s13, s47)))
        t18 = add(t18, add(two(m03, m56, s03, s56), two(m12, m47, s12, s47)))
        t19 = add(t19, add(two(m04, m56, s04, s56), two(m12, m37, s12, s37)))
        t20 = add(t20, add(two(m01, m27, s01, s27), two(m34, m56, s34, s56)))
        t21 = add(t21, add(two(m01, m37, s01, s37), two(m24, m56, s24, s56)))
        t22 = add(t22, add(two(m02, m37, s02, s37), two(m14, m56, s14, s56)))
        t23 = add(t23, add(two(m01, m47, s01, s47), two(m23, m56, s23, s56)))
        t24 = add(t24, add(two(m02, m47, s02, s47), two(m13, m56, s13, s56)))
        t25 = add(t25, add(two(m03, m47, s03, s47), two(m12, m56, s12, s56)))
        t26 = add(t26, add(two(m01, m57, s01, s57), two(m23, m46, s23, s46)))
        t27 = add(t27, add(two(m02, m57, s02, s57), two(m13, m46, s13, s46)))
        t28 = add(t28, add(two(m03, m57, s03, s57), two(m12, m46, s12, s46)))
        t29 = add(t29, add(two(m04, m57, s04, s57), two(m12, m36, s12, s36)))
        t30 = add(t30, add(two(m01, m67, s01, s67), two(m23, m45, s23, s45)))
        t31 = add(t31, add(two(m02, m67, s02, s67), two(m13, m45, s13, s45)))
        t32 = add(t32, add(two(m03, m67, s03, s67), two(m12, m45, s12, s45)))
        t33 = add(t33, add(two(m04, m67, s04, s67), two(m12, m35, s12, s35)))
        t34 = add(t34, add(two(m05, m67, s05, s67), two(m12, m34, s12, s34)))
    totals[0] += t0
    totals[1] += t1
    totals[2] += t2
    totals[3] += t3
    totals[4] += t4
    totals[5] += t5
    totals[6] += t6
    totals[7] += t7
    totals[8] += t8
    totals[9] += t9
    totals[10] += t10
    totals[11] += t11
    totals[12] += t12
    totals[13] += t13
    totals[14] += t14
    totals[15] += t15
    totals[16] += t16
    totals[17] += t17
    totals[18] += t18
    totals[19] += t19
    totals[20] += t20
    totals[21] += t21
    totals[22] += t22
    totals[23] += t23
    totals[24] += t24
    totals[25] += t25
    totals[26] += t26
    totals[27] += t27
    totals[28] += t28
    totals[29] += t29
    totals[30] += t30
    totals[31] += t31
    totals[32] += t32
    totals[33] += t33
    totals[34] += t34
