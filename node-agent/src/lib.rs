//! The Portolan node agent: receives its plan and programs IPVS, ipsets, rules and routes.
