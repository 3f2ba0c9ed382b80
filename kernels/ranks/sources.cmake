list(APPEND SLX_KERNELS_SOURCES ranks/peer_barrier.cu ranks/peer_exchange.cu ranks/peer_mail.cu ranks/peer_rows.cu ranks/rank_sum.cu)
