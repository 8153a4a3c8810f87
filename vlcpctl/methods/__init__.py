"""All methods by the name that `--method` takes. Importing this table does not import torch."""

from __future__ import annotations

from vlcpctl.core.method import Method
from vlcpctl.methods.afec import Afec
from vlcpctl.methods.bct import Bct
from vlcpctl.methods.co2l import Co2l
from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.der import Der
from vlcpctl.methods.derpp import Derpp
from vlcpctl.methods.dha import Dha
from vlcpctl.methods.ema import Ema
from vlcpctl.methods.er import Er
from vlcpctl.methods.ewc import Ewc
from vlcpctl.methods.geodl import Geodl
from vlcpctl.methods.gift import Gift
from vlcpctl.methods.gnsp import Gnsp
from vlcpctl.methods.icarl import Icarl
from vlcpctl.methods.incclip import Incclip
from vlcpctl.methods.joint import Joint
from vlcpctl.methods.lucir import Lucir
from vlcpctl.methods.lwf import Lwf
from vlcpctl.methods.mas import Mas
from vlcpctl.methods.modx import Modx
from vlcpctl.methods.rwalk import Rwalk
from vlcpctl.methods.seqf import Seqf
from vlcpctl.methods.si import Si
from vlcpctl.methods.snd import Snd
from vlcpctl.methods.zscl import Zscl

TABLE: dict[str, type[Method]] = {
    method.name: method
    for method in (
        *(Seqf, Joint, Er, Lwf, Icarl, Lucir),
        *(Ewc, Mas, Si, Rwalk, Afec),
        *(Der, Derpp, Co2l, Geodl, Ema),
        *(Zscl, Snd, Gift, Gnsp),
        *(Ctp, Incclip, Modx, Dha),
        Bct,
    )
}
